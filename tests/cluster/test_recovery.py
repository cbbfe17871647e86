"""Kubernetes replaces a pod that ends, and jobs on other nodes continue."""

import time
from dataclasses import dataclass

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import becomes, eventually


@dataclass(frozen=True)
class Work:
    """Jobs that must survive every fault of the controller."""

    cluster: Cluster
    running: int
    held: int

    def is_unharmed(self) -> None:
        eventually("Slurm answers", lambda: self.cluster.ssh("sinfo", check=False).returncode == 0)
        self.cluster.run(f"scontrol release {self.held}")
        self.cluster.wait_for_job(self.held, "COMPLETED")
        assert self.cluster.job_state(self.running) == "RUNNING"


@pytest.fixture(autouse=True)
def recovered(cluster: Cluster) -> None:
    """Wait until nodes have recovered from the previous test."""
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=240)


@pytest.fixture
def work(cluster: Cluster, folder: str) -> Work:
    # Use the machine that tests never freeze: Slurm would requeue the job of a frozen machine.
    spared = f"--nodelist={cluster.node_on('node-0')}"
    running = cluster.submit(folder, "#!/bin/sh\nsleep 300", spared)
    held = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold")
    cluster.wait_for_job(running, "RUNNING")
    return Work(cluster, running, held)


def test_second_controller_takes_over_when_the_first_is_deleted(
    cluster: Cluster, work: Work
) -> None:
    first = cluster.controller()
    (second,) = cluster.controllers().keys() - {first}
    before = cluster.queue(first)

    cluster.kubectl("delete", "pod", first, timeout=120)

    eventually("the second controller is active", lambda: cluster.queue(second) == before)
    work.is_unharmed()
    assert cluster.controller() == second


def test_second_controller_takes_over_from_a_frozen_node(cluster: Cluster, work: Work) -> None:
    """After the freeze, the first slurmctld runs on as if nothing had happened, and must stop."""
    # The test freezes the controller's node. Move the controller away from node-0 first, because
    # node-0 also runs the Kubernetes API.
    cluster.move_controller("node-1")
    first = cluster.controller()
    (second,) = cluster.controllers().keys() - {first}
    before, starts = cluster.queue(first), cluster.restarts(first)[f"{first}/slurmctld"]
    # Wait until slurmctld has saved its state, at most five seconds after a change.
    time.sleep(6)

    with cluster.frozen("node-1"):
        # The time limit is long: if slurmdbd is also lost, slurmctld waits for slurmdbd longer than
        # its setting MessageTimeout.
        eventually(
            "the second controller serves", lambda: cluster.queue(second) == before, timeout=240
        )

    def has_stopped() -> bool:
        # A missing pod also counts as stopped: Kubernetes deletes the pods of a node that is silent
        # for more than a minute.
        return cluster.restarts(first).get(f"{first}/slurmctld", starts + 1) > starts

    eventually("the first controller stops", has_stopped)
    work.is_unharmed()
    assert cluster.controller() == second


@pytest.mark.soak
def test_kubelet_restarts_a_hanging_slurmctld(cluster: Cluster, work: Work) -> None:
    serving = cluster.controller()
    before = cluster.queue(serving)
    time.sleep(6)

    cluster.signal("STOP", "slurmctld", serving, "slurmctld")

    def restarts() -> str:
        of = "jsonpath={.status.containerStatuses[?(@.name=='slurmctld')].restartCount}"
        return cluster.kubectl("get", "pod", serving, "-o", of)

    eventually("the kubelet restarts slurmctld", lambda: restarts() == "1", 240)
    eventually("slurmctld answers", lambda: cluster.queue(cluster.controller()) == before)
    work.is_unharmed()


def test_replaced_worker_returns_and_jobs_elsewhere_continue(cluster: Cluster, folder: str) -> None:
    elsewhere = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--nodelist=cpu-0")
    cluster.wait_for_job(elsewhere, "RUNNING")

    cluster.replace_pod("cpu-1")

    becomes("the state of cpu-1", lambda: cluster.nodes().get("cpu-1"), "idle", 120)
    assert cluster.job_state(elsewhere) == "RUNNING"
    # The new pod has another address, and a step must still reach the node.
    assert cluster.run("srun --nodelist=cpu-1 hostname") == "cpu-1"


def test_killed_worker_returns(cluster: Cluster) -> None:
    before = cluster.pod_uid("cpu-1")
    cluster.kubectl("delete", "pod", "cpu-1", "--grace-period=0", "--force", timeout=120)

    eventually("cpu-1 has a new pod", lambda: cluster.pod_uid("cpu-1") not in ("", before), 60)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/cpu-1", "--timeout=90s")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
    assert cluster.run("srun --nodelist=cpu-1 hostname") == "cpu-1"


def test_replaced_login_node_has_the_same_host_key(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300")
    cluster.wait_for_job(job, "RUNNING")

    cluster.replace_pod("login-0")

    # A login shows that the host key is the same: ssh would refuse a new host key.
    cluster.wait_for_login()
    assert cluster.job_state(job) == "RUNNING"
    assert cluster.run(f"ls -d {folder}") == folder


def test_operators_drain_persists_when_the_pod_is_replaced(cluster: Cluster) -> None:
    scontrol = (cluster.controller(), "slurmctld", "scontrol", "update", "nodename=cpu-1")
    cluster.in_pod(*scontrol, "state=drain", "reason=bad DIMM")
    try:
        cluster.replace_pod("cpu-1")
        eventually("cpu-1 has registered", lambda: "*" not in cluster.nodes().get("cpu-1", "*"))
        assert cluster.run("sinfo -h -n cpu-1 -o %E") == "bad DIMM"
        assert cluster.nodes()["cpu-1"] == "drain"
    finally:
        cluster.in_pod(*scontrol, "state=resume")
    cluster.wait_for_nodes("cpu-0", "cpu-1")
