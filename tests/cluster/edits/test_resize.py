"""One edit of `replicas` resizes the cluster, and costs no job."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def three_nodes(values: dict[str, Any]) -> None:
    values["nodesets"][0]["replicas"] = 3


def test_a_node_comes_and_goes_and_no_job_is_lost(cluster: Cluster, folder: str) -> None:
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
    assert "cpu-2" not in cluster.nodes(), "the pod deletes its record before it ends"
    assert cluster.job_state(leaving) == "COMPLETED", "it had its grace"
    assert cluster.run(f"cat {folder}/done") == "finished"
    assert set(cluster.nodes()) == {"cpu-0", "cpu-1"}, "no ghost"
    assert cluster.job_state(stays) == "RUNNING"
    assert cluster.run(f"squeue -h -j {stays} -o %S") == started, "it was never restarted"


@pytest.fixture
def brief(cluster: Cluster) -> Iterator[str]:
    """A further node whose jobs get three seconds to end when it leaves; its name."""

    def add(values: dict[str, Any]) -> None:
        model = values["nodesets"][0]
        values["nodesets"].append({**model, "name": "brief", "replicas": 1, "drain_grace": 3})

    with cluster.edited(add):
        cluster.deploy("up")
        eventually("brief-0 is idle", lambda: cluster.nodes().get("brief-0") == "idle")
        yield "brief-0"
    cluster.deploy("up")
    eventually("brief-0 is gone", lambda: set(cluster.nodes()) == {"cpu-0", "cpu-1"})


def test_a_job_that_outlives_the_grace_is_requeued(
    cluster: Cluster, folder: str, brief: str
) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300", f"--nodelist={brief}", "--requeue")
    cluster.wait_for_job(job, "RUNNING")

    begin = time.monotonic()
    cluster.kubectl("delete", "pod", brief, timeout=180)

    assert time.monotonic() - begin < 60, "the grace is three seconds"
    # Slurm starts it again when its old credential has expired, two minutes later.
    eventually("the job waits again", lambda: cluster.job_state(job) == "PENDING")
    assert "Restarts=1" in cluster.run(f"scontrol show job {job}")
    eventually("the node is back", lambda: cluster.nodes().get(brief) == "idle", 90)


def test_a_drained_node_that_left_leaves_no_ghost(cluster: Cluster) -> None:
    with cluster.edited(three_nodes):
        cluster.deploy("up")
        eventually("cpu-2 is idle", lambda: cluster.nodes().get("cpu-2") == "idle")
        drain = "update nodename=cpu-2 state=drain reason=broken-fan"
        cluster.in_pod(cluster.controller(), "slurmctld", "scontrol", *drain.split())
    cluster.deploy("up")

    eventually("its pod is gone", lambda: cluster.pod_uid("cpu-2") == "")
    eventually("its record is gone", lambda: set(cluster.nodes()) == {"cpu-0", "cpu-1"}, 240)
