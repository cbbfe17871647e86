"""With `keep_machine`, a node's new pod starts on the same machine as the node's last pod.

A scheduling gate (a mark that keeps Kubernetes from scheduling a pod) holds each new pod until the
reconciler has chosen the machine.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agents import labels
from agents.kubernetes import MERGE, STRATEGIC, KubernetesError
from components import conventions as c
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.nodesets import SMALL, deployed, is_idle, machine_of
from tests.support.waiting import becomes, eventually

NODE = "home-0"
HOME = {**SMALL, "name": "home", "replicas": 2, "keep_machine": True}


@pytest.fixture(scope="module", autouse=True)
def _nodesets(cluster: Cluster) -> Iterator[None]:
    reconciler = {"interval": 60, "rollout": 120}
    with deployed(cluster, nodesets=[HOME], reconciler=reconciler):
        for node in ("home-0", "home-1"):
            eventually(f"{node} is idle", is_idle(cluster, node), 180)
        yield


def restart(cluster: Cluster) -> None:
    """Replace the node's pod, and wait until Kubernetes may schedule the new pod."""
    cluster.kubectl("delete", "pod", NODE, timeout=180)

    def may_start() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in cluster.pods(c.WORKER)}
        return NODE in pods and not pods[NODE]["spec"].get("schedulingGates")

    eventually("the node's pod may be scheduled", may_start, 30)


def recorded(cluster: Cluster) -> str:
    return cluster.run(f"scontrol show node {NODE} | grep -o 'InstanceId=.*' | cut -d= -f2").strip()


def test_pod_waits_for_its_machine_until_an_operator_releases_it(cluster: Cluster) -> None:
    machine = machine_of(cluster, NODE)
    assert recorded(cluster) == machine

    with cluster.cordoned(machine):
        restart(cluster)
        pod = json.loads(cluster.kubectl("get", "pod", NODE, "--output=json"))
        assert pod["spec"]["nodeSelector"][labels.HOSTNAME] == machine
        assert machine_of(cluster, NODE) == ""
    eventually("the node is back", is_idle(cluster, NODE), 120)
    assert machine_of(cluster, NODE) == machine

    with cluster.cordoned(machine):
        restart(cluster)
        released = ("scontrol", "update", f"nodename={NODE}", "instanceid=")
        cluster.operate(*released)
        restart(cluster)
        eventually("the node is back", is_idle(cluster, NODE), 120)
        other = machine_of(cluster, NODE)
    assert other != machine
    becomes("the machine in Slurm's record of the node", lambda: recorded(cluster), other)


def test_reconciler_may_only_remove_its_gate_from_pods(cluster: Cluster) -> None:
    """The patches are dry runs: the API server accepts or refuses them, but changes nothing."""
    reconciler = cluster.as_account(c.RECONCILER)
    name = "gated-by-a-test"
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {c.LABEL_COMPONENT: c.WORKER}},
        "spec": {
            "containers": [{"name": "a", "image": "example.org/a:1"}],
            "schedulingGates": [{"name": "example.org/a"}, {"name": c.GATE_MACHINE}],
        },
    }

    def patch(change: dict[str, Any], kind: str = STRATEGIC) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?dryRun=All"
        found: dict[str, Any] = reconciler.ask("PATCH", path, change, kind=kind)
        return found

    gate = {"name": c.GATE_MACHINE, "$patch": "delete"}
    starts = {"schedulingGates": [gate], "nodeSelector": {labels.HOSTNAME: "node-1"}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    try:
        assert patch({"spec": starts})["spec"]["schedulingGates"] == [{"name": "example.org/a"}]
        with pytest.raises(KubernetesError, match="the reconciler may only let a gated pod start"):
            patch({"spec": {**starts, "schedulingGates": None}}, MERGE)
        with pytest.raises(KubernetesError, match="the reconciler may only let a gated pod start"):
            patch({"spec": {**starts, "activeDeadlineSeconds": 60}})
        with pytest.raises(KubernetesError, match="the reconciler may only let a gated pod start"):
            patch({"metadata": {"annotations": {"a": "b"}}, "spec": starts})
        cluster.kubectl("label", "pod", name, "--overwrite", f"{c.LABEL_COMPONENT}={c.LOGIN}")
        with pytest.raises(KubernetesError, match="only pods of nodesets"):
            patch({"spec": starts})
    finally:
        cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=false")
