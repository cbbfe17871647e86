"""A fault takes a node out of service. The node returns to service when the fault ends."""

from dataclasses import dataclass

import pytest

from tests.cluster.health.faults import munged_hangs
from tests.cluster.health.node import BROKEN, NVIDIA_SMI, WELL, Node
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

HANGS = "exec sleep 10000"


@dataclass(frozen=True)
class Fault:
    """Root's commands that cause a fault and clear it."""

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
        "MiB of memory are free on a node without jobs",
    ),
}


@pytest.mark.parametrize("check", FAULTS)
def test_fault_drains_its_node_until_the_fault_ends(node: Node, check: str) -> None:
    fault = FAULTS[check]
    node.root(fault.make)
    try:
        node.is_drained_for(f"check:{check}")
        assert fault.says in node.reason
        # The node is drained, so new jobs run on the other node.
        assert node.cluster.run("srun hostname") == "cpu-0"
    finally:
        node.root(fault.clear)
    node.is_back()
    assert node.reason == "none"
    assert node.cluster.run(f"srun --nodelist={node.name} hostname") == node.name


def test_broken_gpu_drains_its_node_until_the_check_passes(node: Node) -> None:
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")

    # A check that hangs has not passed, so the drain stays.
    node.brings(HANGS)
    assert "gpu-ecc" in node.looks().unknown
    node.looks()
    assert node.reason.startswith("slurmstack:check:gpu-ecc:")

    node.prints(WELL)
    node.is_back()


def test_running_jobs_end_normally_on_a_drained_node(node: Node, folder: str) -> None:
    wait = "#!/bin/sh\ntouch begun; until [ -e go ]; do sleep 0.2; done"
    job = node.cluster.submit(folder, wait, f"--nodelist={node.name}")
    # Wait for the script. Slurm already reports the job as running during the prolog, and the
    # prolog runs checks too.
    begun = f"test -e {folder}/begun"
    eventually("the job has begun", lambda: node.cluster.ssh(begun, check=False).returncode == 0)
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc")
    assert node.cluster.job_state(job) == "RUNNING"

    node.cluster.run(f"touch {folder}/go")
    node.cluster.wait_for_job(job, "COMPLETED")


def test_job_is_requeued_when_its_prolog_finds_a_fault(node: Node, folder: str) -> None:
    """The job starts before the next regular run of the checks, so its prolog finds the fault."""
    node.looks()
    node.prints(BROKEN)
    job = node.cluster.submit(
        folder, "#!/bin/sh\nhostname >where", f"--nodelist={node.name}", "--requeue"
    )
    node.is_drained_for("check:gpu-ecc")
    assert node.cluster.ssh(f"cat {folder}/where", check=False).returncode != 0
    eventually("the job is pending again", lambda: node.cluster.job_state(job) == "PENDING")
    # Set the start time, because Slurm delays a requeued job for two minutes, even if the job had
    # not started.
    node.cluster.run(f"scontrol update jobid={job} reqnodelist=cpu-0 starttime=now")
    node.cluster.wait_for_job(job)
    assert node.cluster.run(f"cat {folder}/where") == "cpu-0"


def test_hanging_check_does_not_block_its_node(node: Node) -> None:
    node.brings(HANGS)
    assert "gpu-ecc" in node.looks().unknown
    assert node.cluster.run(f"srun --nodelist={node.name} hostname") == node.name
    node.looks()
    node.is_back()
    # Each run of the checks starts a new process. Processes that hang must not accumulate.
    assert node.root("ps -eo args").splitlines().count(HANGS.removeprefix("exec ")) <= 1


@pytest.mark.soak
def test_node_with_a_hanging_munged_gets_no_jobs(node: Node) -> None:
    """The node cannot report its own fault, because slurmctld gets no answer from the node."""
    with munged_hangs(node.cluster, node.name):
        # Wait for the failed ping: slurmctld pings each node every minute.
        eventually(
            "slurmctld reports the node as not responding", lambda: node.state.endswith("*"), 300
        )
        assert node.cluster.run("srun hostname") == "cpu-0"
    node.is_back(400)


@pytest.mark.soak
def test_kubelet_restarts_a_hanging_munged_but_not_its_pod(node: Node) -> None:
    of = "jsonpath={.status.initContainerStatuses[?(@.name=='munge')].restartCount}"

    def restarts() -> int:
        return int(node.cluster.kubectl("get", "pod", node.name, "-o", of))

    pod, before = node.cluster.pod_uid(node.name), restarts()
    node.cluster.signal("STOP", "munged", node.name, "munge")

    # Wait longer than five minutes: after several restarts, the kubelet waits up to five minutes
    # before the next restart.
    eventually("the kubelet restarts munged", lambda: restarts() == before + 1, 600)
    node.is_back(180)
    assert node.cluster.pod_uid(node.name) == pod
    assert node.cluster.run(f"srun --nodelist={node.name} hostname") == node.name


def test_checks_do_not_change_an_operators_drain(node: Node) -> None:
    mine = ("scontrol", "update", f"nodename={node.name}", "state=drain", "reason=new disk")
    node.cluster.operate(*mine)
    try:
        node.prints(BROKEN)
        eventually("the check fails", lambda: "gpu-ecc" in node.looks().failed)
        assert node.reason == "new disk"
        node.prints(WELL)
        eventually("the check passes", lambda: not node.looks().failed)
        node.looks()
        assert (node.state, node.reason) == ("drain", "new disk")
    finally:
        node.cluster.operate("scontrol", "update", f"nodename={node.name}", "state=resume")


def test_command_check_node_prints_the_verdicts(node: Node) -> None:
    lines = node.root("check-node || true").splitlines()
    verdicts = {name: verdict for name, verdict, *_ in (line.split("\t") for line in lines)}
    assert verdicts["disk"] == verdicts["gpu-ecc"] == verdicts["munge"] == "passed"


def test_missing_gpu_driver_does_not_drain_the_node(node: Node) -> None:
    node.root(f"rm {NVIDIA_SMI}")
    assert "gpu-ecc" in node.looks().unknown
    assert node.state == "idle"


def test_all_nodes_report_that_no_check_failed(cluster: Cluster) -> None:
    for name in ("cpu-0", "cpu-1"):
        assert Node(cluster, name).looks().failed == ()
