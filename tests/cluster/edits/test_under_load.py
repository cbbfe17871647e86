"""When a busy cluster is edited, each of its 100 short and 5 long jobs runs exactly once."""

import contextlib
import datetime
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.nodesets import edit_nodeset
from tests.support.waiting import eventually

SHORT, LONG = 100, 5


@pytest.fixture(scope="module", autouse=True)
def _nodes_for_the_load(cluster: Cluster) -> Iterator[None]:
    def add(values: dict[str, Any]) -> None:
        model = {"name": "load", "replicas": 2, "cpus": 8, "drain_grace": 300}
        values["nodesets"].append(values["nodesets"][0] | model)

    with cluster.edited(add):
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", "load-0", "load-1")
        yield
    cluster.deploy("up")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)


def tasks(cluster: Cluster, *jobs: int) -> Counter[str]:
    """Count the tasks of the arrays by state."""
    listed = ",".join(map(str, jobs))
    return Counter(
        cluster.run(f"squeue --noheader --array --states=all --jobs={listed} --format=%T").split()
    )


@contextlib.contextmanager
def load(cluster: Cluster, folder: str) -> Iterator[Callable[[], None]]:
    """Run the jobs; yield a function that ends the long jobs; check that each job ran once."""
    long = f"#!/bin/sh\necho >>{folder}/long-$SLURM_ARRAY_TASK_ID\n"
    long += f"until [ -e {folder}/enough ]; do sleep 0.5; done"
    short = f"#!/bin/sh\necho >>{folder}/short-$SLURM_ARRAY_TASK_ID\nsleep 2"
    options = ("--constraint=load", "--output=/dev/null")
    jobs = (
        cluster.submit(folder, long, f"--array=1-{LONG}", *options),
        cluster.submit(folder, short, f"--array=1-{SHORT}", *options),
    )
    eventually("the long jobs run", lambda: tasks(cluster, jobs[0])["RUNNING"] == LONG)

    def enough() -> None:
        cluster.run(f"touch {folder}/enough")

    try:
        yield enough

        assert tasks(cluster, jobs[0])["RUNNING"] + tasks(cluster, jobs[0])["COMPLETED"] == LONG
        enough()
        everything = {"COMPLETED": SHORT + LONG}
        eventually("all jobs are done", lambda: tasks(cluster, *jobs) == everything, 180)
    finally:
        cluster.run(f"scancel {jobs[0]} {jobs[1]}")
    begun = cluster.run(f"cd {folder} && wc -l short-* long-* | grep -v total").split()[::2]
    assert begun == ["1"] * (SHORT + LONG), "each job began once"


def test_reconfigure_under_load_loses_no_job(cluster: Cluster, folder: str) -> None:
    def more_partitions(values: dict[str, Any]) -> None:
        values["partitions"] = [
            {"name": "main", "nodesets": ["cpu", "load"], "default": True},
            {"name": "second", "nodesets": ["load"]},
        ]

    with load(cluster, folder):
        with cluster.edited(more_partitions):
            cluster.deploy("up")
            assert "second" in cluster.run("sinfo --noheader --format=%R").split()
        cluster.deploy("up")


def test_resize_under_load_loses_no_job(cluster: Cluster, folder: str) -> None:
    with load(cluster, folder):
        with cluster.edited(edit_nodeset("load", replicas=3)):
            cluster.deploy("up")
            eventually("load-2 is in Slurm", lambda: "load-2" in cluster.nodes())
        cluster.deploy("up")
        eventually("load-2 is gone", lambda: "load-2" not in cluster.nodes(), 120)


@pytest.mark.soak
def test_new_node_size_rolls_out_node_by_node(cluster: Cluster, folder: str) -> None:
    def sizes() -> list[str]:
        return cluster.run("sinfo --noheader --Node --nodes=load-[0-1] --format=%m").split()

    before = sizes()
    with load(cluster, folder) as enough, cluster.edited(edit_nodeset("load", memory="1200MiB")):
        cluster.deploy("up")
        eventually("a node drains", lambda: "drain" in cluster.run("sinfo -h -o %T"))
        enough()
        eventually(
            "both nodes have the new size",
            lambda: len(sizes()) == 2 and not set(sizes()) & set(before),
            240,
        )
    cluster.deploy("up")
    eventually("both nodes have the old size", lambda: sizes() == before, 240)


def wait_for_key(cluster: Cluster, since: int) -> None:
    """Wait until every munged uses the key that takes effect at `since` (Unix time)."""
    for pod in (cluster.controller(), "login-0", "cpu-0", "cpu-1", "load-0", "load-1"):
        eventually(
            f"{pod} uses the new key",
            lambda: last_key(cluster, pod) == str(since),  # noqa: B023  # called at once
            120,
        )


def last_key(cluster: Cluster, pod: str) -> str:
    log = cluster.kubectl("logs", pod, "-c", "munge")
    taken_over = re.findall(r"^key (\d+) replaces key", log, re.MULTILINE)
    return str(taken_over[-1]) if taken_over else "0"


def test_rotation_of_the_munge_key_loses_no_job(cluster: Cluster, folder: str) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)
    moment = soon.replace(microsecond=0)

    def rotate(values: dict[str, Any]) -> None:
        values["auth"] = {"rotations": [moment.isoformat()]}

    try:
        with load(cluster, folder), cluster.edited(rotate):
            cluster.deploy("up")
            assert datetime.datetime.now(datetime.UTC) < moment, (
                "pods must have the new key before it takes effect"
            )
            wait_for_key(cluster, int(moment.timestamp()))
            assert cluster.run("srun --nodes=2 --constraint=cpu hostname").split()
            assert set(cluster.nodes().values()) <= {"idle", "mix", "alloc", "comp"}
    finally:
        # Return to the first key only when no job runs. Each pod uses the first key again as soon
        # as the new key is removed from this pod, and the pods do not do this at the same time.
        cluster.deploy("up")
        wait_for_key(cluster, 0)
    cluster.run("srun --nodes=2 --constraint=cpu hostname")
