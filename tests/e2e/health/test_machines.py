"""What Kubernetes says of a machine, Slurm hears, and the other way round."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, cast

import docker

from tests.e2e.cluster import Cluster, eventually
from tests.e2e.health.conftest import Node


def machine(cluster: Cluster, name: str) -> dict[str, Any]:
    """A Kubernetes node."""
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "node", name, "-o", "json"))
    return found


@contextlib.contextmanager
def frozen_kubelet(cluster: Cluster, name: str) -> Iterator[None]:
    container = docker.from_env().containers.get(f"slurmstack-{cluster.stack}-{name}")
    _, output = container.exec_run(["pgrep", "--oldest", "--exact", "kubelet"])
    pid = cast(bytes, output).decode().strip()
    container.exec_run(["kill", "-STOP", pid])
    try:
        yield
    finally:
        container.exec_run(["kill", "-CONT", pid])


def test_a_cordon_drains_and_its_end_brings_back(node: Node, folder: str) -> None:
    job = node.cluster.submit(folder, "#!/bin/sh\nsleep 600", f"--nodelist={node.name}")
    node.cluster.wait_for_job(job, "RUNNING")
    name = node.machine
    node.cluster.kubectl("cordon", name)
    try:
        node.is_drained_for("kubernetes:cordoned")
        assert node.cluster.job_state(job) == "RUNNING"
    finally:
        node.cluster.kubectl("uncordon", name)
    eventually("it is lifted", lambda: node.reason == "none")
    assert node.cluster.job_state(job) == "RUNNING"


def test_a_cordon_leaves_the_drain_of_somebody_else(node: Node) -> None:
    cluster, name = node.cluster, node.machine
    update = ("scontrol", "update", f"nodename={node.name}")
    cluster.in_pod(cluster.controller(), "slurmctld", *update, "state=drain", "reason=mine")
    cluster.kubectl("cordon", name)
    try:
        node.looks()
        assert node.reason == "mine"
    finally:
        cluster.kubectl("uncordon", name)
    node.looks()
    node.looks()
    assert (node.state, node.reason) == ("drain", "mine")
    cluster.in_pod(cluster.controller(), "slurmctld", *update, "state=resume")


def test_broken_hardware_marks_its_machine_until_it_is_well(node: Node) -> None:
    cluster, name = node.cluster, node.machine

    def marked() -> bool:
        found = machine(cluster, name)
        taints = [taint["key"] for taint in found["spec"].get("taints", [])]
        (status,) = [
            condition["status"]
            for condition in found["status"]["conditions"]
            if condition["type"] == "SlurmNodeUnhealthy"
        ] or ["False"]
        return "slurmstack.dev/unhealthy" in taints and status == "True"

    node.prints("a100-sram-uncorrectable")
    eventually("the machine is marked", marked)
    assert "gpu-ecc" in json.dumps(machine(cluster, name)["status"]["conditions"])

    node.prints("h100-535.183.01")
    node.is_back()
    eventually("the mark is gone", lambda: not marked())


def nothing_but_nodes_on(cluster: Cluster, name: str) -> None:
    """Moves all that the tests and the reconciler need to other machines than this one."""

    def others() -> list[dict[str, Any]]:
        found = cluster.objects("pods", "slurmstack.dev/component!=worker")
        return [pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")]

    cluster.kubectl("cordon", name)
    try:
        for pod in others():
            if pod["spec"].get("nodeName") == name:
                cluster.kubectl("delete", "pod", pod["metadata"]["name"], timeout=180)
        eventually(
            "they are elsewhere",
            lambda: all(pod["spec"].get("nodeName", name) != name for pod in others()),
        )
    finally:
        cluster.kubectl("uncordon", name)


def test_a_frozen_kubelet_takes_the_node_out_of_service(node: Node, folder: str) -> None:
    nothing_but_nodes_on(node.cluster, node.machine)
    # That takes all of them.
    node.is_back(180)
    job = node.cluster.submit(folder, "#!/bin/sh\nsleep 600", f"--nodelist={node.name}")
    node.cluster.wait_for_job(job, "RUNNING")
    # Kubernetes waits for 40 s.
    with frozen_kubelet(node.cluster, node.machine):
        node.is_drained_for("kubernetes:not-ready", 120)
        assert node.cluster.job_state(job) == "RUNNING"
    eventually("it is lifted", lambda: node.reason == "none", 120)
    assert node.cluster.job_state(job) == "RUNNING"
