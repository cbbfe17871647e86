"""An update of a node waits for the node's jobs. A node that does not return stops the update."""

from collections.abc import Iterator
from typing import Any

import pytest

from components import conventions as c
from tests.support.cluster import Cluster
from tests.support.nodesets import SMALL, deployed, edit_nodeset
from tests.support.waiting import becomes, eventually

NODES = ("roll-0", "roll-1", "roll-2", "roll-3")
ROLL = {**SMALL, "name": "roll", "replicas": len(NODES), "roll": {"share": 0.75}}
PARTITIONS = [
    {"name": "main", "nodesets": ["cpu"], "default": True},
    {"name": "roll", "nodesets": ["roll"]},
]
IDLE = dict.fromkeys(NODES, "idle")
LIMIT = 30
"""Seconds in which an updated node must return."""
UNTIL = "#!/bin/sh\nwhile [ ! -e {0} ]; do sleep 0.2; done"


@pytest.fixture(scope="module", autouse=True)
def _nodesets(cluster: Cluster) -> Iterator[None]:
    reconciler = {"interval": 5, "rollout": LIMIT}
    with deployed(cluster, nodesets=[ROLL], partitions=PARTITIONS, reconciler=reconciler):
        becomes("the state of each new node", lambda: nodes(cluster), IDLE, 120)
        yield


def nodes(cluster: Cluster) -> dict[str, str]:
    return {name: state for name, state in cluster.nodes().items() if name in NODES}


def pods(cluster: Cluster) -> dict[str, str]:
    """Return the UIDs of the nodeset's pods."""
    found = cluster.objects("pods", f"{c.LABEL_NODESET}=roll")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}


def draining(cluster: Cluster) -> set[str]:
    """Return the nodes that are drained for an update."""
    listed = cluster.run("sinfo --noheader --Node --format='%N %E'").splitlines()
    return {line.split()[0] for line in listed if " slurmstack:roll" in line}


def memory(cluster: Cluster) -> set[str]:
    """Return the memory sizes in Slurm's records of the nodes, in MiB."""
    return set(cluster.run("sinfo --noheader --partition=roll --format=%m").split())


def updated(cluster: Cluster, before: dict[str, str]) -> set[str]:
    """Return the nodes whose pods have been replaced."""
    return {name for name, uid in pods(cluster).items() if uid != before[name]}


def test_three_nodes_are_updated_at_once_and_the_fourth_follows(
    cluster: Cluster, folder: str
) -> None:
    before, size = pods(cluster), memory(cluster)
    jobs = [
        cluster.submit(
            folder, UNTIL.format("last" if node == "roll-3" else "go"), f"--nodelist={node}",
            *("--partition=roll", "--no-requeue"),
        )
        for node in NODES
    ]  # fmt: skip
    waiting = cluster.submit(folder, "#!/bin/sh\nsleep 1", "--partition=roll", "--array=1-20")
    for job in jobs:
        cluster.wait_for_job(job, "RUNNING")

    with cluster.edited(edit_nodeset("roll", memory="320MiB")):
        cluster.deploy("up")
        becomes("the set of draining nodes", lambda: draining(cluster), {*NODES[:3]})
        assert updated(cluster, before) == set(), "no pod is replaced while its job runs"

        cluster.run(f"touch {folder}/go")
        becomes("the set of updated nodes", lambda: updated(cluster, before), {*NODES[:3]}, 120)
        becomes("the set of draining nodes", lambda: draining(cluster), {"roll-3"}, 120)
        assert cluster.job_state(jobs[3]) == "RUNNING"

        cluster.run(f"touch {folder}/last")
        becomes("the set of updated nodes", lambda: updated(cluster, before), {*NODES}, 120)
        for job in (*jobs, waiting):
            cluster.wait_for_job(job, "COMPLETED", 120)
        becomes("the state of each node", lambda: nodes(cluster), IDLE, 120)
        assert memory(cluster).isdisjoint(size)
        restarts = cluster.run(
            f"sacct -nX -o restarts -j {','.join(map(str, (*jobs, waiting)))} -S now-1hour"
        )
        assert set(restarts.split()) == {"0"}
    cluster.deploy("up")
    becomes("the set of node sizes", lambda: memory(cluster), size, 180)


def test_node_that_does_not_return_stops_the_update(cluster: Cluster) -> None:
    becomes("the state of each node", lambda: nodes(cluster), IDLE, 180)
    before = pods(cluster)
    change: dict[str, Any] = {"pod": {"image": "worker:missing"}, "roll": {"share": 0.25}}

    with cluster.edited(edit_nodeset("roll", **change)):
        cluster.deploy("up")
        log = ("logs", f"deploy/{c.RECONCILER}", "--since=2m")
        eventually(
            "the reconciler logs that roll-0 is not back",
            lambda: (
                "roll-0: roll: the node has not returned after its update; nodes of this "
                "nodeset with old settings: 3" in cluster.kubectl(*log)
            ),
            LIMIT + 60,
        )
        assert updated(cluster, before) == {"roll-0"}
        assert cluster.run("srun --partition=roll --nodes=3 hostname | sort").split() == [
            *NODES[1:]
        ]
    cluster.deploy("up")

    becomes("the state of each node", lambda: nodes(cluster), IDLE, 120)
    assert updated(cluster, before) == {"roll-0"}, "no other node was updated"


def test_only_nodes_in_a_maintenance_reservation_are_updated(cluster: Cluster) -> None:
    def slurm(*words: str) -> str:
        return cluster.operate("scontrol", *words)

    before = pods(cluster)
    change: dict[str, Any] = {"memory": "320MiB", "roll": {"in_maintenance": True}}
    with cluster.edited(edit_nodeset("roll", **change)):
        cluster.deploy("up")
        said = f"deploy/{c.RECONCILER}"
        eventually(
            "the reconciler logs that four nodes wait",
            lambda: "roll: nodes that still have old settings: 4" in cluster.kubectl("logs", said),
        )
        assert updated(cluster, before) == set()
        slurm(
            *("create", "reservation", "reservationname=update", "starttime=now", "duration=10"),
            *("nodes=roll-[1-2]", "users=root", "flags=maint,ignore_jobs"),
        )
        try:
            becomes(
                "the set of updated nodes",
                lambda: updated(cluster, before),
                {"roll-1", "roll-2"},
                120,
            )
            becomes("the set of draining nodes", lambda: draining(cluster), set(), 120)
        finally:
            slurm("delete", "reservationname=update")
        assert updated(cluster, before) == {"roll-1", "roll-2"}
