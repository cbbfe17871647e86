"""Any pod may go at any time: it comes back, and what ran elsewhere goes on."""

import time
from dataclasses import dataclass

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import becomes, eventually


@dataclass(frozen=True)
class Work:
    """Jobs that must outlive whatever befalls the controller."""

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
    """What the test before it did to nodes is over."""
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=240)


@pytest.fixture
def work(cluster: Cluster, folder: str) -> Work:
    # On the machine that no test silences: the jobs of one that is silent for long run elsewhere.
    spared = f"--nodelist={cluster.node_on('node-0')}"
    running = cluster.submit(folder, "#!/bin/sh\nsleep 300", spared)
    held = cluster.submit(folder, "#!/bin/sh\ntrue", "--hold")
    cluster.wait_for_job(running, "RUNNING")
    return Work(cluster, running, held)


def test_the_second_controller_takes_over_when_the_first_is_deleted(
    cluster: Cluster, work: Work
) -> None:
    first = cluster.controller()
    (second,) = cluster.controllers().keys() - {first}
    before = cluster.queue(first)

    cluster.kubectl("delete", "pod", first, timeout=120)

    eventually("the second one serves", lambda: cluster.queue(second) == before)
    work.is_unharmed()
    assert cluster.controller() == second


def test_a_controller_whose_node_falls_silent_gives_up_its_place(
    cluster: Cluster, work: Work
) -> None:
    """The node is frozen, so that its slurmctld goes on later as if nothing had happened."""
    # Not the node that the Kubernetes API is on.
    cluster.move_controller("node-1")
    first = cluster.controller()
    (second,) = cluster.controllers().keys() - {first}
    before, starts = cluster.queue(first), cluster.restarts(first)[f"{first}/slurmctld"]
    # slurmctld writes its state within five seconds of a change, here as on any machine.
    time.sleep(6)

    with cluster.frozen("node-1"):
        # Where slurmdbd is lost with it, slurmctld waits for that for more than MessageTimeout.
        eventually("the second one serves", lambda: cluster.queue(second) == before, timeout=240)

    def has_stopped() -> bool:
        # Kubernetes replaces the pods of a node that is silent for more than a minute.
        return cluster.restarts(first).get(f"{first}/slurmctld", starts + 1) > starts

    eventually("the first one stops", has_stopped)
    work.is_unharmed()
    assert cluster.controller() == second


@pytest.mark.soak
def test_a_slurmctld_that_answers_nothing_is_started_again(cluster: Cluster, work: Work) -> None:
    serving = cluster.controller()
    before = cluster.queue(serving)
    time.sleep(6)

    cluster.signal("STOP", "slurmctld", serving, "slurmctld")

    def restarts() -> str:
        of = "jsonpath={.status.containerStatuses[?(@.name=='slurmctld')].restartCount}"
        return cluster.kubectl("get", "pod", serving, "-o", of)

    eventually("the kubelet starts it again", lambda: restarts() == "1", 240)
    eventually("it serves", lambda: cluster.queue(cluster.controller()) == before)
    work.is_unharmed()


def test_a_worker_comes_back_while_jobs_elsewhere_go_on(cluster: Cluster, folder: str) -> None:
    elsewhere = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--nodelist=cpu-0")
    cluster.wait_for_job(elsewhere, "RUNNING")

    cluster.replace_pod("cpu-1")

    becomes("the state of cpu-1", lambda: cluster.nodes().get("cpu-1"), "idle", 120)
    assert cluster.job_state(elsewhere) == "RUNNING"
    # Its address is another one now: a step must find it all the same.
    assert cluster.run("srun --nodelist=cpu-1 hostname") == "cpu-1"


def test_a_worker_that_dies_unprepared_comes_back(cluster: Cluster) -> None:
    before = cluster.pod_uid("cpu-1")
    cluster.kubectl("delete", "pod", "cpu-1", "--grace-period=0", "--force", timeout=120)

    eventually("cpu-1 is another", lambda: cluster.pod_uid("cpu-1") not in ("", before), 60)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/cpu-1", "--timeout=90s")
    cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
    assert cluster.run("srun --nodelist=cpu-1 hostname") == "cpu-1"


def test_login_comes_back_as_the_same_host(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300")
    cluster.wait_for_job(job, "RUNNING")

    cluster.replace_pod("login-0")

    # ssh checks the host key strictly: a new one would be refused.
    cluster.wait_for_login()
    assert cluster.job_state(job) == "RUNNING"
    assert cluster.run(f"ls -d {folder}") == folder


def test_somebody_elses_drain_survives_the_pod(cluster: Cluster) -> None:
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
