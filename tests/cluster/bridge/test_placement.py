"""Slurm chooses the machine of a pod among those that Kubernetes allows."""

import time

import pytest

from tests.cluster.bridge.lab import GANG, Lab
from tests.support.waiting import becomes, eventually


def test_pod_waits_while_jobs_use_all_cpus(lab: Lab) -> None:
    first, second = lab.holds("cpu-0", 2), lab.holds("cpu-1", 2)
    lab.create(lab.manifest("train"))

    becomes(
        "the pod's message",
        lambda: lab.message("train").partition(" waits in Slurm")[2],
        ": Resources",
    )
    assert lab.machine("train") == ""

    lab.cluster.run(f"scancel {first}")
    lab.wait_for("train")
    assert lab.cluster.node_on(lab.machine("train")) == "cpu-0"
    lab.cluster.run(f"scancel {second}")


def test_job_waits_while_pods_use_all_cpus(lab: Lab) -> None:
    names = [f"p{index}" for index in range(4)]
    lab.create(*map(lab.manifest, names))
    for name in names:
        lab.wait_for(name)
    job = lab.cluster.submit("~", "#!/bin/sh\nsleep 1")
    time.sleep(2)
    assert lab.state(job) == "PENDING"

    lab.delete(names[0])
    lab.cluster.wait_for_job(job, "COMPLETED")


def test_pods_of_a_gang_start_together_or_not_at_all(lab: Lab) -> None:
    blocking = lab.holds("cpu-0", 2)
    annotations = {**GANG["annotations"], "slurmstack.dev/cpu-per-task": "2"}
    for name in ("one", "two"):
        lab.create(lab.manifest(name, labels=GANG["labels"], annotations=annotations))
    job = lab.job("one")
    assert lab.job("two") == job
    becomes("the job's state", lambda: lab.state(job), "PENDING")
    time.sleep(3)
    assert (lab.machine("one"), lab.machine("two")) == ("", "")

    lab.cluster.run(f"scancel {blocking}")
    for name in ("one", "two"):
        lab.wait_for(name)
    assert lab.machine("one") != lab.machine("two")


def test_gang_starts_when_its_second_machine_returns(lab: Lab) -> None:
    """While too few nodes are allowed, Slurm says that the job can never run."""
    blocking = [lab.holds(node, 2) for node in ("cpu-0", "cpu-1")]
    annotations = {**GANG["annotations"], "slurmstack.dev/cpu-per-task": "2"}
    names, machine = ("one", "two"), lab.machine_of("cpu-1")
    for name in names:
        lab.create(lab.manifest(name, labels=GANG["labels"], annotations=annotations))
    job = lab.job("one")
    with lab.cluster.cordoned(machine):
        eventually("the job excludes the node", lambda: "cpu-1" in lab.shown(job, "ExcNodeList")[0])
        for one in blocking:
            lab.cluster.run(f"scancel {one}")
        eventually("Slurm has tried to start it", lambda: lab.shown(job, "Reason") != ["Resources"])
        time.sleep(5)
    for name in names:
        lab.wait_for(name, timeout=90)


def test_part_of_a_gang_gets_no_job(lab: Lab) -> None:
    lab.create(lab.manifest("one", **GANG))
    becomes("the message", lambda: lab.message("one"), "1 of 2 pods of its gang exist")
    assert lab.cluster.run("squeue --me --noheader") == ""


@pytest.mark.parametrize("node", ["cpu-0", "cpu-1"])
def test_pod_runs_only_where_its_selector_allows(lab: Lab, node: str) -> None:
    worker = lab.cluster.pod(node)
    assert worker
    machine = worker["spec"]["nodeName"]
    chosen = {"kubernetes.io/hostname": machine}
    lab.create(lab.manifest("here", nodeSelector=chosen))
    lab.wait_for("here")
    assert lab.machine("here") == machine


def test_pod_without_room_in_kubernetes_runs_on_another_machine(lab: Lab) -> None:
    worker = lab.cluster.pod("cpu-0")
    assert worker
    machine = worker["spec"]["nodeName"]
    with lab.cluster.cordoned(machine):
        lab.create(lab.manifest("there"))
        lab.wait_for("there")
        assert lab.machine("there") != machine
