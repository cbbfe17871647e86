"""One edit of `replicas` resizes the cluster without losing a job."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def three_nodes(values: dict[str, Any]) -> None:
    values["nodesets"][0]["replicas"] = 3


def test_adding_and_removing_a_node_loses_no_job(cluster: Cluster, folder: str) -> None:
    stays = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=cpu-0", "--output=/dev/null")
    cluster.wait_for_job(stays, "RUNNING")
    started = cluster.run(f"squeue -h -j {stays} -o %S")

    with cluster.edited(three_nodes):
        cluster.deploy("up")
        eventually("cpu-2 is idle", lambda: cluster.nodes().get("cpu-2") == "idle")

    leaving = cluster.submit(folder, "#!/bin/sh\nsleep 10; echo finished >done", "--nodelist=cpu-2")
    cluster.wait_for_job(leaving, "RUNNING")
    cluster.deploy("up")

    eventually("the pod of cpu-2 is gone", lambda: cluster.pod_uid("cpu-2") == "")
    assert "cpu-2" not in cluster.nodes(), "the pod deletes its node's record before the pod ends"
    assert cluster.job_state(leaving) == "COMPLETED", "the job ends within drain_grace"
    assert cluster.run(f"cat {folder}/done") == "finished"
    assert set(cluster.nodes()) == {"cpu-0", "cpu-1"}, "slurmctld has no record of the removed node"
    assert cluster.job_state(stays) == "RUNNING"
    assert cluster.run(f"squeue -h -j {stays} -o %S") == started, "the job was never restarted"


@pytest.fixture
def brief(cluster: Cluster) -> Iterator[str]:
    """Yield the name of an additional node with three seconds of drain_grace."""

    def add(values: dict[str, Any]) -> None:
        model = values["nodesets"][0]
        values["nodesets"].append({**model, "name": "brief", "replicas": 1, "drain_grace": 3})

    with cluster.edited(add):
        cluster.deploy("up")
        eventually("brief-0 is idle", lambda: cluster.nodes().get("brief-0") == "idle")
        yield "brief-0"
    cluster.deploy("up")
    eventually("brief-0 is gone", lambda: set(cluster.nodes()) == {"cpu-0", "cpu-1"})


def test_job_is_requeued_after_the_drain_grace(cluster: Cluster, folder: str, brief: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300", f"--nodelist={brief}", "--requeue")
    cluster.wait_for_job(job, "RUNNING")

    begin = time.monotonic()
    cluster.kubectl("delete", "pod", brief, timeout=180)

    assert time.monotonic() - begin < 60, "drain_grace is three seconds"
    # Slurm restarts the job two minutes later, when its old credential has expired.
    eventually("the job is pending again", lambda: cluster.job_state(job) == "PENDING")
    assert "Restarts=1" in cluster.run(f"scontrol show job {job}")
    eventually("the node is back", lambda: cluster.nodes().get(brief) == "idle", 90)


def test_slurmctld_forgets_a_drained_node_that_is_removed(cluster: Cluster) -> None:
    with cluster.edited(three_nodes):
        cluster.deploy("up")
        eventually("cpu-2 is idle", lambda: cluster.nodes().get("cpu-2") == "idle")
        drain = "update nodename=cpu-2 state=drain reason=broken-fan"
        cluster.in_pod(cluster.controller(), "slurmctld", "scontrol", *drain.split())
    cluster.deploy("up")

    eventually("the pod of cpu-2 is gone", lambda: cluster.pod_uid("cpu-2") == "")
    eventually("cpu-2 has no record", lambda: set(cluster.nodes()) == {"cpu-0", "cpu-1"}, 240)
