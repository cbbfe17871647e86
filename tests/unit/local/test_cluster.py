"""Readiness of nodes, pods and Deployments, from the objects in the API."""

import datetime
from typing import Any

import pytest

from local.cluster import belongs_to, is_rolled_out, node_is_ready, pod_runs

START = datetime.datetime(2030, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)
STARTED = {0: START}
BEFORE = "2030-01-01T11:59:59Z"
AFTER = "2030-01-01T12:00:00Z"


def node(status: str, heartbeat: str, name: str = "node-0") -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}
    other = {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": heartbeat}
    return {"metadata": {"name": name}, "status": {"conditions": [other, ready]}}


def pod(ready: bool, since: str | None, on: str = "node-0") -> dict[str, Any]:
    state = {"running": {"startedAt": since}} if since else {"waiting": {}}
    return {
        "metadata": {"generateName": "coredns-5f8b48fd87-"},
        "spec": {"nodeName": on},
        "status": {"containerStatuses": [{"ready": ready, "state": state}]},
    }


def test_node_is_ready_when_its_kubelet_reports_ready() -> None:
    assert node_is_ready(node("True", AFTER), STARTED)
    assert not node_is_ready(node("False", AFTER), STARTED)


def test_kubelet_report_before_the_restart_is_ignored() -> None:
    assert not node_is_ready(node("True", BEFORE), STARTED)


def test_node_without_a_container_is_not_ready() -> None:
    assert not node_is_ready(node("True", AFTER, "node-1"), STARTED)


def test_node_without_a_kubelet_report_is_not_ready() -> None:
    assert not node_is_ready({"metadata": {"name": "node-0"}, "status": {}}, STARTED)


@pytest.mark.parametrize(
    ("ready", "since", "on", "expected"),
    [
        (True, AFTER, "node-0", True),
        (False, AFTER, "node-0", False),
        (True, BEFORE, "node-0", False),
        (True, AFTER, "node-1", False),
        (False, None, "node-0", False),
    ],
)
def test_pod_is_running_if_ready_since_its_node_started(
    ready: bool, since: str | None, on: str, expected: bool
) -> None:
    assert pod_runs(pod(ready, since, on), STARTED) is expected


def test_unscheduled_pod_is_not_running() -> None:
    assert not pod_runs({"metadata": {}, "spec": {}, "status": {}}, STARTED)


def test_deployment_of_a_pod_is_read_from_the_pod_name() -> None:
    assert belongs_to(pod(True, AFTER), "coredns")
    assert not belongs_to(pod(True, AFTER), "core")
    assert not belongs_to({"metadata": {"name": "coredns"}}, "coredns")


@pytest.mark.parametrize(
    ("generation", "updated", "replicas", "expected"),
    [(2, 1, 1, True), (1, 1, 1, False), (2, 0, 1, False), (2, 1, 2, False)],
)
def test_deployment_is_rolled_out_when_only_its_newest_pods_remain(
    generation: int, updated: int, replicas: int, expected: bool
) -> None:
    status = {
        "observedGeneration": generation,
        "updatedReplicas": updated,
        "availableReplicas": 1,
        "replicas": replicas,
    }
    deployment = {"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": status}
    assert is_rolled_out(deployment) is expected
