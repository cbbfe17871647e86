"""Throughput of jobs and nodes on a running stack, compared with Slurm outside the stack.

Each comparison measures its two variants in the order A, B, B, A, so that other load slows both
variants equally.
"""

import datetime
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

from components.settings import read_stack
from local.paths import ROOT
from tests.bench import outside
from tests.bench.figures import Figures, say
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

USER, UID = "researcher", 2000
JOB = "--quiet --output=/dev/null --chdir=/tmp --wrap=true"
ROUNDS = 6

# Give the nodes many CPUs. Otherwise, jobs would wait for free CPUs, and the benchmark would not
# measure slurmctld.
LOAD = {"name": "load", "replicas": 2, "cpus": 32, "cpu_request": 0.2, "memory": "2GiB"}
LOADED = ("load-0", "load-1")
JOBS = 300
SUBMITTERS = 4
THROUGHPUT = f"""
begin=$(date +%s%N)
seq {JOBS} | xargs -P{SUBMITTERS} -I% sbatch --constraint=load {JOB}
while [ "$(squeue --noheader --format=%A)" ]; do sleep 0.1; done
echo $(($(date +%s%N) - begin))
"""
"""Script that prints the nanoseconds from the first submission until all jobs have ended."""

SUBMISSIONS = 100
BY_SBATCH = f"""
begin=$(date +%s%N)
for i in $(seq {SUBMISSIONS}); do sbatch --hold {JOB}; done
echo $(($(date +%s%N) - begin))
"""
BY_HTTP = f"""
import os, time
from pathlib import Path
from agents.slurm import Client, JobRequest, from_key

key = from_key(Path(os.environ["JWT_KEY"]), "{USER}")
client = Client(os.environ["REST_URL"], key)
job = JobRequest(
    name="bench", script="#!/bin/sh\\ntrue\\n", directory="/tmp", hold=True, output="/dev/null"
)
client.ping()
begin = time.monotonic_ns()
for _ in range({SUBMISSIONS}):
    client.submit(job)
print(time.monotonic_ns() - begin)
"""

MORE = {"name": "more", "replicas": 0, "cpus": 1, "cpu_request": 0.05, "memory": "128MiB"}
ADDED = 10
UNTIL_IDLE = f"""
until [ "$(sinfo --noheader --Node --states=idle --format=%N | grep -c ^more-)" = {ADDED} ]; do
  sleep 0.1
done
date +%s%N
"""


def measure(figures: Figures, cluster: Cluster) -> None:
    throughput(figures, cluster)
    submissions(figures, cluster)
    more_nodes(figures, cluster)


def alternate(*sides: Callable[[], float], rounds: int = ROUNDS) -> list[tuple[float, ...]]:
    """Measure all sides in each round, in alternating order; return the times of each round."""
    took = []
    for turn in range(rounds):
        order: Iterable[int] = range(len(sides))
        found = {side: sides[side]() for side in (reversed([*order]) if turn % 2 else order)}
        took.append(tuple(found[side] for side in range(len(sides))))
        say("  " + ", ".join(f"{value:.2f} s" for value in took[-1]))
    return took


def compare(
    figures: Figures, names: tuple[str, str], took: list[tuple[float, ...]], n: int
) -> None:
    for side, name in enumerate(names):
        figures.add(name, statistics.median(n / values[side] for values in took))


# --- Jobs ----------------------------------------------------------------------------------------


def throughput(figures: Figures, cluster: Cluster) -> None:
    """Measure empty jobs on the stack and on the same Slurm in plain containers."""
    say(f"running {JOBS} jobs on the stack and in plain containers, {ROUNDS} times")
    with cluster.edited(lambda values: values["nodesets"].append(LOAD)):
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", *LOADED)
        settings = read_stack(cluster.stack, ROOT)
        (jail,) = (cluster.directory / "volumes").glob("*_jail")
        with outside.slurm(settings, ["load"], jail) as login:
            listed = "sinfo --noheader --Node --states=idle --format=%N"
            eventually("the nodes outside are idle", lambda: login.run(listed).split() == [*LOADED])
            took = alternate(
                lambda: int(cluster.run(THROUGHPUT, timeout=300)) / 1e9,
                lambda: int(login.run(THROUGHPUT, user=f"{UID}:{UID}")) / 1e9,
            )
    cluster.deploy("up")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)
    compare(figures, ("jobs per second, on the stack", "jobs per second, outside"), took, JOBS)
    ratio = statistics.median(there / here for here, there in took)
    figures.add("ratio of jobs per second, on the stack to outside", ratio, at_least=0.95)


def submissions(figures: Figures, cluster: Cluster) -> None:
    """Measure submissions of held jobs over HTTP and with sbatch."""
    say(f"submitting {SUBMISSIONS} jobs over HTTP and with sbatch, {ROUNDS} times")

    def by_http() -> float:
        agent = ("deploy/reconciler", "reconciler", "python3", "-c", BY_HTTP)
        return forgotten(int(cluster.in_pod(*agent)) / 1e9)

    def by_sbatch() -> float:
        return forgotten(int(cluster.run(BY_SBATCH)) / 1e9)

    def forgotten(took: float) -> float:
        cluster.run(f"scancel --user={USER}")
        return took

    took = alternate(by_http, by_sbatch)
    compare(
        figures,
        ("submissions per second, HTTP", "submissions per second, sbatch"),
        took,
        SUBMISSIONS,
    )
    ratio = statistics.median(sbatch / http for http, sbatch in took)
    figures.add("ratio of submissions per second, HTTP to sbatch", ratio, at_least=0.8)


# --- Nodes ---------------------------------------------------------------------------------------


def more_nodes(figures: Figures, cluster: Cluster) -> None:
    """Measure the time from `up` until new nodes are idle, and until slurmd starts on them."""

    def nodeset(replicas: int) -> Callable[[dict[str, Any]], None]:
        return lambda values: values["nodesets"].append(MORE | {"replicas": replicas})

    idle, running = [], []
    with cluster.edited(nodeset(0)):
        cluster.deploy("up")
    for turn in range(ROUNDS):
        say(f"adding {ADDED} nodes, round {turn + 1} of {ROUNDS}")
        with cluster.edited(nodeset(ADDED)):
            begin = time.time()
            waiting = subprocess.Popen(
                ["ssh", "-F", cluster.directory / "ssh_config", "login", UNTIL_IDLE],
                stdout=subprocess.PIPE,
                text=True,
            )
            cluster.deploy("up")
            output, _ = waiting.communicate(timeout=180)
            idle.append(int(output) / 1e9 - begin)
            running.append(slurmd_started(cluster) - begin)
            say(f"  idle after {idle[-1]:.1f} s, slurmd started after {running[-1]:.1f} s")
        with cluster.edited(nodeset(0)):
            cluster.deploy("up")
        eventually(
            "the added nodes are gone", lambda: set(cluster.nodes()) == {"cpu-0", "cpu-1"}, 180
        )
    figures.add(f"{ADDED} more nodes are idle", statistics.median(idle))
    figures.add(f"{ADDED} more nodes run slurmd", statistics.median(running))
    ratio = statistics.median(late / early for late, early in zip(idle, running, strict=True))
    figures.add(
        f"{ADDED} more nodes, ratio of the time until idle to the time until slurmd runs",
        ratio,
        at_most=1.3,
    )


def slurmd_started(cluster: Cluster) -> float:
    """Return when Kubernetes started the last new slurmd (Unix time in whole seconds)."""
    # Wait for the last report: the nodes are idle already, but Kubernetes reports the start of
    # slurmd slightly later.
    started = eventually("Kubernetes reports every new slurmd", lambda: starts_of_slurmd(cluster))
    return max(datetime.datetime.fromisoformat(moment).timestamp() for moment in started)


def starts_of_slurmd(cluster: Cluster) -> list[str]:
    """Return the start time of slurmd on each new node; [] until slurmd runs on all of them."""
    pods = cluster.objects("pods", "slurmstack.dev/nodeset=more")
    started = [
        status["state"]["running"]["startedAt"]
        for pod in pods
        for status in pod["status"].get("containerStatuses", ())
        if status["name"] == "slurmd" and "running" in status["state"]
    ]
    return started if len(started) == ADDED else []
