"""Kubernetes by kubeadm on machines: made, made on after a kill, changed, and taken away again."""

import os
import signal
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from components.conventions import LABEL_NODESET
from tests.container.metal.lab import STATE, Lab, is_clean
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def made(lab: Lab) -> Iterator[Lab]:
    """The cluster, made by a second deploy after the first was killed at the worst moment."""
    first = lab.engine("up", "--yes")
    try:
        eventually(
            "kubeadm is at work",
            lambda: (
                lab.head.exists(f"{STATE}/member-begun")
                and lab.head.exists("/etc/kubernetes/manifests/etcd.yaml")
            ),
            timeout=120,
        )
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        print(first.communicate()[0])
    lab.up()
    yield lab
    lab.deploy("destroy", "--yes")


@pytest.fixture
def edited(made: Lab) -> Iterator[dict[str, Any]]:
    """The worker's settings, which are as they were afterwards."""
    before = deepcopy(made.cluster)
    yield made.cluster["machines"][1]
    made.cluster = before


def labels(node: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = node["metadata"]["labels"]
    return found


def taints(node: dict[str, Any]) -> list[str]:
    return [
        f"{one['key']}={one.get('value')}:{one['effect']}" for one in node["spec"].get("taints", [])
    ]


def test_both_machines_are_ready_and_are_what_their_settings_say(made: Lab) -> None:
    eventually("both are ready", lambda: len(made.nodes()) == 2, timeout=120)
    head, worker = made.nodes()["node-0"], made.nodes()["node-1"]

    assert "node-role.kubernetes.io/control-plane" in labels(head)
    assert LABEL_NODESET not in labels(head)
    assert taints(head) == [], "everything else runs there"
    assert labels(worker)[LABEL_NODESET] == "cpu"
    assert taints(worker) == [f"{LABEL_NODESET}=cpu:NoSchedule"]
    assert not is_clean(made.head)
    assert not is_clean(made.worker)
    for node, machine in ((head, made.head), (worker, made.worker)):
        addresses = {one["type"]: one["address"] for one in node["status"]["addresses"]}
        assert addresses["InternalIP"] == machine.address


def test_a_pod_of_the_nodeset_runs_on_its_machine(made: Lab) -> None:
    pod = made.kubectl("get", "pod", "pod")

    assert pod["spec"]["nodeName"] == "node-1"
    assert pod["status"]["phase"] == "Running"


def test_a_second_deploy_changes_nothing(made: Lab) -> None:
    made.deploy("preview", "--expect-no-changes")
    made.deploy("up", "--yes", "--expect-no-changes")


def test_all_scripts_find_what_they_have_done(made: Lab, edited: dict[str, Any]) -> None:
    before = {name: node["metadata"]["uid"] for name, node in made.nodes().items()}
    for machine in made.cluster["machines"]:
        machine["host_key"] += " again"

    made.up()
    assert {name: node["metadata"]["uid"] for name, node in made.nodes().items()} == before


def test_a_machine_with_another_host_key_is_not_spoken_to(
    made: Lab, edited: dict[str, Any]
) -> None:
    edited["host_key"] = made.head.settings()["host_key"]

    assert "Host key verification failed" in made.up(fails=True)


def test_a_machine_of_another_minor_version_is_refused(made: Lab, edited: dict[str, Any]) -> None:
    made.cluster["release"] = "1.33.0"

    assert "has kubeadm v1.34.4, expected v1.33: upgrade the machine" in made.up(fails=True)


def test_a_machine_leaves_clean_and_comes_back(made: Lab, edited: dict[str, Any]) -> None:
    worker = made.cluster["machines"].pop()
    made.nodeset["replicas"] = 0
    made.up()
    assert set(made.nodes()) == {"node-0"}
    assert is_clean(made.worker)

    made.cluster["machines"].append(worker)
    made.nodeset["replicas"] = 1
    made.up()
    eventually("it is ready again", lambda: set(made.nodes()) == {"node-0", "node-1"}, timeout=120)
    assert made.kubectl("get", "pod", "pod")["spec"]["nodeName"] == "node-1"


def test_a_cluster_that_somebody_else_made_is_left_alone(made: Lab) -> None:
    marks = f"{STATE}/member"
    made.head.run(f"mv {marks} /root/")
    try:
        member = made.cluster["kubeadm"]["KubeletConfiguration"]
        member["maxPods"] = 50
        said = made.up(fails=True)
    finally:
        made.head.run(f"mv /root/member {marks}")
        del member["maxPods"]
    assert "which is not this stack's" in said
    assert set(made.nodes()) == {"node-0", "node-1"}
    made.up()


def test_a_destroyed_stack_leaves_its_machines_clean(made: Lab) -> None:
    made.deploy("destroy", "--yes")

    assert is_clean(made.worker)
    assert is_clean(made.head)
