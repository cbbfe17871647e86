"""Measure how much cgroups slow jobs down: `srun true` and job arrays, with and without cgroups.

This needs no Kubernetes: two clusters of one node run in containers. Each round measures both
clusters once, in random order, so that other load on the machine affects both equally.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from agents.node import FOLDER
from tests.bench.figures import Figures, say, take_turns
from tests.bench.jail import TIMED, quartile
from tests.support.containers import containers
from tests.support.spank import Node, one_node

ROUNDS = 40
ARRAYS = 6
JOBS = 40
"""Number of jobs in each array."""
WAYS: Mapping[str, str] = {"without confinement": "disabled", "with confinement": "required"}
WITHOUT, WITH = WAYS
AT_MOST = 1.05
ARRAY = (
    "s=$(date +%s%N);"
    f"j=$(sbatch --parsable --output=/dev/null --array=1-{JOBS} --mem=10 --wrap true);"
    # Do not use sbatch --wait: it polls only every few seconds.
    'while [ "$(squeue --noheader --jobs=$j)" ]; do sleep 0.1; done;'
    "e=$(date +%s%N); echo $(( (e - s) / 1000 ))"
)
"""Script that prints the duration of the array in microseconds."""


def measure(figures: Figures) -> None:
    say("running srun and job arrays, with and without confinement by cgroups")
    with containers("slurmstack-bench") as start, ExitStack() as stack:
        cpus = f"CPUs={os.cpu_count()}"
        nodes = {
            way: stack.enter_context(one_node(start, cpus=cpus, cgroups=cgroups))
            for way, cgroups in WAYS.items()
        }
        unconfined = nodes[WITH].root(f"ls {FOLDER}/unconfined 2>/dev/null || true")
        assert not unconfined, f"slurmd does not confine jobs: {unconfined}"
        single = on_each(nodes, TIMED, ROUNDS)
        arrays = on_each(nodes, ARRAY, ARRAYS)
    add(figures, "srun, a job", single)
    add(figures, f"an array of {JOBS} jobs", arrays)


def on_each(nodes: Mapping[str, Node], command: str, rounds: int) -> dict[str, list[int]]:
    """Return the times that a command prints on each node."""
    return take_turns({way: partial(timed, node, command) for way, node in nodes.items()}, rounds)


def timed(node: Node, command: str) -> int:
    return int(node.user(command))


def add(figures: Figures, what: str, times: Mapping[str, list[int]]) -> None:
    without = quartile(times[WITHOUT])
    figures.add(f"{what}, {WITHOUT}, in ms", without / 1000)
    figures.add(f"{what}, ratio with/without", quartile(times[WITH]) / without, at_most=AT_MOST)
