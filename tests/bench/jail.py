"""Measure how much longer `srun true` takes when the SPANK plugin isolates the job in the jail.

This needs no Kubernetes: slurmctld and one slurmd run in containers. The variants (`WAYS`)
alternate in random order, so that other load on the machine affects all of them equally. Other load
can slow a run down by much more than the plugin does, so the figures use the first quartile of the
times.
"""

import random
import statistics
from collections.abc import Mapping
from typing import Any

from components import conventions as c
from tests.bench.figures import Figures, say
from tests.support.containers import containers
from tests.support.spank import Node, one_node

ROUNDS = 20
STEPS = 5
"""Number of measured steps in each allocation. One more step runs before them, unmeasured."""
STACK = f"{c.WORKER_SPOOL}/conf-cache/plugstack.conf"
SIZES = {"tmp": "64MiB", "var_tmp": "64MiB", "shm": "64MiB"}
WITHOUT = "without the plugin"
WAYS: Mapping[str, Mapping[str, Any]] = {
    WITHOUT: {},
    "with all isolation": SIZES,
    "with all isolation and the overlay": {**SIZES, "overlay": True},
}
WANTED = {"with all isolation": 1.05, "with all isolation and the overlay": 1.15}
TIMED = "s=$(date +%s%N); srun --quiet true; e=$(date +%s%N); echo $(( (e - s) / 1000 ))"
"""Script that prints the duration in microseconds."""


def measure(figures: Figures) -> None:
    say("jail: running srun with and without the SPANK plugin")
    jobs: dict[str, list[int]] = {way: [] for way in WAYS}
    steps: dict[str, list[int]] = {way: [] for way in WAYS}
    with containers("slurmstack-bench") as start, one_node(start) as node:
        with_plugin = node.root(f"cat {STACK}")
        # mpi.conf names this directory, which the plugin creates only in a job's private /tmp. The
        # steps without the plugin need the directory in the node's /tmp.
        node.root("mkdir /tmp/.pmix")
        for _ in range(ROUNDS):
            for way in random.sample(list(WAYS), len(WAYS)):
                choose(node, way, with_plugin)
                jobs[way].append(int(node.user(TIMED)))
                steps[way] += in_allocation(node)
    for kind, took in (("a job", jobs), ("a step in an allocation", steps)):
        without = quartile(took[WITHOUT])
        figures.add(f"srun, {kind}, {WITHOUT}, in ms", without / 1000)
        for way, at_most in WANTED.items():
            ratio = quartile(took[way]) / without
            figures.add(f"srun, {kind}, {way}, ratio to {WITHOUT}", ratio, at_most=at_most)


def quartile(times: list[int]) -> float:
    """Return the first quartile of the times."""
    return statistics.quantiles(times, n=4)[0]


def choose(node: Node, way: str, with_plugin: str) -> None:
    node.isolate(**WAYS[way])
    # Edit plugstack.conf without a restart: slurmstepd reads the file again for each step.
    node.root(f": >{STACK}" if way == WITHOUT else f"cat >{STACK} <<'END'\n{with_plugin}\nEND")


def in_allocation(node: Node) -> list[int]:
    loop = f"srun --quiet true; for i in $(seq {STEPS}); do {TIMED}; done"
    return [int(line) for line in node.user(f"salloc --quiet bash -c '{loop}'").split()]
