"""A fault takes its node out of service, and its end brings it back."""

from dataclasses import dataclass

import pytest

from tests.cluster.health.faults import munged_hangs
from tests.cluster.health.node import BROKEN, NVIDIA_SMI, WELL, Node, operator
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

HANGS = "exec sleep 10000"


@dataclass(frozen=True)
class Fault:
    """What root does to a node, and undoes."""

    make: str
    clear: str
    says: str


HOG = "import time; held = bytearray(300 << 20); time.sleep(600)"
FAULTS = {
    "disk": Fault(
        "head --bytes=200M /dev/zero >/dev/shm/full", "rm /dev/shm/full", "/dev/shm is full"
    ),
    "memory": Fault(
        f"setsid python3 -c '{HOG}' </dev/null >/dev/null 2>&1 & echo $! >/tmp/hog",
        "kill $(cat /tmp/hog)",
        "MiB are free on an idle node",
    ),
}


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_drains_its_node_until_it_is_over(node: Node, check: str) -> None:
    fault = FAULTS[check]
    node.root(fault.make)
    try:
        node.is_drained_for(f"check:{check}")
        assert fault.says in node.reason
        # New jobs go elsewhere.
        assert node.cluster.run("srun hostname") == "cpu-0"
    finally:
        node.root(fault.clear)
    node.is_back()
    assert node.reason == "none"
    assert node.cluster.run(f"srun --nodelist={node.name} hostname") == node.name


def test_a_broken_gpu_drains_its_node_until_the_check_passes(node: Node) -> None:
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")

    # What cannot be asked is not well.
    node.brings(HANGS)
    assert "gpu-ecc" in node.looks().unknown
    node.looks()
    assert node.reason.startswith("slurmstack:check:gpu-ecc:")

    node.prints(WELL)
    node.is_back()


def test_running_jobs_end_in_peace(node: Node, folder: str) -> None:
    wait = "#!/bin/sh\ntouch begun; until [ -e go ]; do sleep 0.2; done"
    job = node.cluster.submit(folder, wait, f"--nodelist={node.name}")
    # Slurm calls it running while the prolog, which looks for faults as well, is still at work.
    begun = f"test -e {folder}/begun"
    eventually("it has begun", lambda: node.cluster.ssh(begun, check=False).returncode == 0)
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    assert node.cluster.job_state(job) == "RUNNING"

    node.cluster.run(f"touch {folder}/go")
    node.cluster.wait_for_job(job, "COMPLETED")


def test_a_job_whose_prolog_finds_a_fault_goes_elsewhere(node: Node, folder: str) -> None:
    """The job is there before the next look of the node's."""
    node.looks()
    node.prints(BROKEN)
    job = node.cluster.submit(
        folder, "#!/bin/sh\nhostname >where", f"--nodelist={node.name}", "--requeue"
    )
    node.is_drained_for("check:gpu-ecc")
    assert node.cluster.ssh(f"cat {folder}/where", check=False).returncode != 0
    eventually("it waits", lambda: node.cluster.job_state(job) == "PENDING")
    # A job that was queued again is held back for two minutes; it need not have begun at all.
    node.cluster.run(f"scontrol update jobid={job} reqnodelist=cpu-0 starttime=now")
    node.cluster.wait_for_job(job)
    assert node.cluster.run(f"cat {folder}/where") == "cpu-0"


def test_a_check_that_hangs_holds_up_nothing(node: Node) -> None:
    node.brings(HANGS)
    assert "gpu-ecc" in node.looks().unknown
    assert node.cluster.run(f"srun --nodelist={node.name} hostname") == node.name
    node.looks()
    node.is_back()
    # None piles up.
    assert node.root("ps -eo args").splitlines().count(HANGS.removeprefix("exec ")) <= 1


@pytest.mark.soak
def test_a_node_whose_munged_hangs_again_and_again_gets_no_jobs(node: Node) -> None:
    """It cannot even tell that it should be drained: slurmctld hears nothing of it."""
    with munged_hangs(node.cluster, node.name):
        # slurmctld asks each node every minute.
        eventually("Slurm hears of it no more", lambda: node.state.endswith("*"), 300)
        assert node.cluster.run("srun hostname") == "cpu-0"
    node.is_back(400)


@pytest.mark.soak
def test_a_munged_that_hangs_is_started_again_and_its_pod_stays(node: Node) -> None:
    of = "jsonpath={.status.initContainerStatuses[?(@.name=='munge')].restartCount}"

    def restarts() -> int:
        return int(node.cluster.kubectl("get", "pod", node.name, "-o", of))

    pod, before = node.cluster.pod_uid(node.name), restarts()
    node.cluster.signal("STOP", "munged", node.name, "munge")

    # Where it was started again and again before, the kubelet waits for up to five minutes.
    eventually("munged is started again", lambda: restarts() == before + 1, 600)
    node.is_back(180)
    assert node.cluster.pod_uid(node.name) == pod
    assert node.cluster.run(f"srun --nodelist={node.name} hostname") == node.name


def test_a_drain_of_somebody_else_stays_as_it_is(node: Node) -> None:
    mine = ("scontrol", "update", f"nodename={node.name}", "state=drain", "reason=new disk")
    operator(node.cluster, *mine)
    try:
        node.prints(BROKEN)
        eventually("it is seen", lambda: "gpu-ecc" in node.looks().failed)
        assert node.reason == "new disk"
        node.prints(WELL)
        eventually("it is seen", lambda: not node.looks().failed)
        node.looks()
        assert (node.state, node.reason) == ("drain", "new disk")
    finally:
        operator(node.cluster, "scontrol", "update", f"nodename={node.name}", "state=resume")


def test_an_operator_sees_what_the_checks_find(node: Node) -> None:
    lines = node.root("check-node || true").splitlines()
    found = {name: verdict for name, verdict, *_ in (line.split("\t") for line in lines)}
    assert found["disk"] == found["gpu-ecc"] == found["munge"] == "passed"


def test_without_its_driver_a_node_is_not_judged(node: Node) -> None:
    node.root(f"rm {NVIDIA_SMI}")
    assert "gpu-ecc" in node.looks().unknown
    assert node.state == "idle"


def test_all_nodes_leave_evidence(cluster: Cluster) -> None:
    for name in ("cpu-0", "cpu-1"):
        assert Node(cluster, name).looks().failed == ()
