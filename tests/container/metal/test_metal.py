"""kubeadm creates Kubernetes on machines: deploy, continue after a kill, edit, and destroy."""

import os
import signal
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from components.conventions import LABEL_NODESET
from tests.container.metal.lab import STATE, Lab, is_clean
from tests.support.waiting import becomes, eventually


@pytest.fixture(scope="module")
def deployed(lab: Lab) -> Iterator[Lab]:
    """A cluster whose first deploy was killed while kubeadm ran. The second deploy completed it."""
    first = lab.engine("up", "--yes")
    try:
        eventually(
            "kubeadm has begun to create the control plane",
            lambda: (
                lab.head.exists(f"{STATE}/member-begun")
                and lab.head.exists("/etc/kubernetes/manifests/etcd.yaml")
            ),
            timeout=120,
        )
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        print(first.communicate()[0])
    try:
        lab.up()
        yield lab
    finally:
        lab.deploy("destroy", "--yes")


@pytest.fixture
def edited(deployed: Lab) -> Iterator[dict[str, Any]]:
    """The worker's settings, which the test may change. The fixture restores them."""
    before = deepcopy(deployed.cluster)
    yield deployed.cluster["machines"][1]
    deployed.cluster = before


def labels(node: dict[str, Any]) -> dict[str, str]:
    node_labels: dict[str, str] = node["metadata"]["labels"]
    return node_labels


def taints(node: dict[str, Any]) -> list[str]:
    return [
        f"{one['key']}={one.get('value')}:{one['effect']}" for one in node["spec"].get("taints", [])
    ]


def taints_of(lab: Lab, name: str) -> list[str]:
    return taints(lab.nodes()[name])


def test_both_nodes_are_ready_and_match_their_settings(deployed: Lab) -> None:
    eventually("both nodes are ready", lambda: len(deployed.nodes()) == 2, timeout=120)
    # The control plane has no taint, so that pods without a nodeset can run on it. Wait, because
    # Kubernetes removes its own taint only after it has set a node to ready.
    for name, wanted in (("node-0", []), ("node-1", [f"{LABEL_NODESET}=cpu:NoSchedule"])):
        becomes(f"the taints of {name}", partial(taints_of, deployed, name), wanted)
    head, worker = deployed.nodes()["node-0"], deployed.nodes()["node-1"]

    assert "node-role.kubernetes.io/control-plane" in labels(head)
    assert LABEL_NODESET not in labels(head)
    assert labels(worker)[LABEL_NODESET] == "cpu"
    assert not is_clean(deployed.head)
    assert not is_clean(deployed.worker)
    for node, machine in ((head, deployed.head), (worker, deployed.worker)):
        addresses = {one["type"]: one["address"] for one in node["status"]["addresses"]}
        assert addresses["InternalIP"] == machine.address


def test_pod_runs_on_the_machine_of_its_nodeset(deployed: Lab) -> None:
    pod = deployed.kubectl("get", "pod", "pod-0")

    assert pod["spec"]["nodeName"] == "node-1"
    assert pod["status"]["phase"] == "Running"


def test_second_deploy_changes_nothing(deployed: Lab) -> None:
    deployed.deploy("preview", "--expect-no-changes")
    deployed.deploy("up", "--yes", "--expect-no-changes")


def test_second_run_of_the_scripts_keeps_the_nodes(deployed: Lab, edited: dict[str, Any]) -> None:
    before = {name: node["metadata"]["uid"] for name, node in deployed.nodes().items()}
    # A changed comment of a host key makes the deploy run scripts on this machine again.
    for machine in deployed.cluster["machines"]:
        machine["host_key"] += " again"

    deployed.up()
    assert {name: node["metadata"]["uid"] for name, node in deployed.nodes().items()} == before


def test_refuses_a_machine_with_another_host_key(deployed: Lab, edited: dict[str, Any]) -> None:
    edited["host_key"] = deployed.head.settings()["host_key"]

    assert "Host key verification failed" in deployed.up(fails=True)


def test_refuses_a_machine_with_another_kubernetes_minor_version(
    deployed: Lab, edited: dict[str, Any]
) -> None:
    deployed.cluster["release"] = "1.33.0"

    assert "has kubeadm v1.34.4, expected v1.33: upgrade the machine" in deployed.up(fails=True)


def test_removed_machine_is_clean_and_can_join_again(deployed: Lab, edited: dict[str, Any]) -> None:
    worker = deployed.cluster["machines"].pop()
    deployed.nodeset["replicas"] = 0
    deployed.up()
    assert set(deployed.nodes()) == {"node-0"}
    assert is_clean(deployed.worker)

    deployed.cluster["machines"].append(worker)
    deployed.nodeset["replicas"] = 1
    deployed.up()
    eventually(
        "the node is ready again",
        lambda: set(deployed.nodes()) == {"node-0", "node-1"},
        timeout=120,
    )
    assert deployed.kubectl("get", "pod", "pod-0")["spec"]["nodeName"] == "node-1"


def test_cluster_of_another_owner_stays_unchanged(deployed: Lab) -> None:
    marker = f"{STATE}/member"
    deployed.head.run(f"mv {marker} /root/")
    try:
        member = deployed.cluster["kubeadm"]["KubeletConfiguration"]
        member["maxPods"] = 50
        output = deployed.up(fails=True)
    finally:
        deployed.head.run(f"mv /root/member {marker}")
        del member["maxPods"]
    assert "is already a member of another Kubernetes cluster" in output
    assert set(deployed.nodes()) == {"node-0", "node-1"}
    deployed.up()


def test_destroy_removes_the_cluster_from_its_machines(deployed: Lab) -> None:
    deployed.deploy("destroy", "--yes")

    assert is_clean(deployed.worker)
    assert is_clean(deployed.head)
