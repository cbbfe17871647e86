"""A cordon drains the Slurm node of a machine, and evictions wait for the node's jobs. The
reconciler marks a machine with broken hardware."""

import json
from typing import Any

from tests.cluster.health.node import BROKEN, WELL, Node
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.waiting import eventually


def machine(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return a Kubernetes node."""
    node: dict[str, Any] = json.loads(cluster.kubectl("get", "node", name, "-o", "json"))
    return node


def test_cordon_drains_the_node_until_the_cordon_is_lifted(node: Node, folder: str) -> None:
    job = node.cluster.submit(folder, "#!/bin/sh\nsleep 600", f"--nodelist={node.name}")
    node.cluster.wait_for_job(job, "RUNNING")
    with node.cluster.cordoned(node.machine):
        node.is_drained_for("kubernetes:cordoned")
        assert node.cluster.job_state(job) == "RUNNING"
    eventually("the drain is lifted", lambda: node.reason == "none")
    assert node.cluster.job_state(job) == "RUNNING"


def evict(node: Node) -> str:
    """Evict the node's pod, as `kubectl drain` does.

    Return the error with which Kubernetes refuses the eviction, or "" if Kubernetes accepts it.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{node.name}/eviction"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": node.name, "namespace": NAMESPACE},
    }
    done = node.cluster.kubectl_result(
        "create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), check=False
    )
    return done.stderr if done.returncode else ""


def test_eviction_waits_until_the_jobs_of_the_node_have_ended(node: Node, folder: str) -> None:
    cluster = node.cluster
    before = cluster.pod_uid(node.name)
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", f"--nodelist={node.name}")
    cluster.wait_for_job(job, "RUNNING")

    with cluster.cordoned(node.machine):
        node.is_drained_for("kubernetes:cordoned")
        node.looks()
        assert "disruption budget" in evict(node)
        assert cluster.job_state(job) == "RUNNING"
        assert cluster.pod_uid(node.name) == before
        cluster.operate("scontrol", "suspend", str(job))
        node.looks()
        node.looks()
        assert "disruption budget" in evict(node), "an eviction would lose the suspended job"

        cluster.run(f"scancel {job}")
        eventually("the pod is evicted", lambda: evict(node) == "")
        eventually("the pod has ended", lambda: cluster.pod_uid(node.name) != before)
    node.is_back()


def test_cordon_does_not_change_an_operators_drain(node: Node) -> None:
    cluster = node.cluster
    update = ("scontrol", "update", f"nodename={node.name}")
    cluster.operate(*update, "state=drain", "reason=mine")
    with cluster.cordoned(node.machine):
        node.looks()
        assert node.reason == "mine"
    node.looks()
    node.looks()
    assert (node.state, node.reason) == ("drain", "mine")
    cluster.operate(*update, "state=resume")


def test_machine_is_marked_while_its_hardware_is_broken(node: Node) -> None:
    cluster, name = node.cluster, node.machine

    def marked() -> bool:
        current = machine(cluster, name)
        taints = [taint["key"] for taint in current["spec"].get("taints", [])]
        (status,) = [
            condition["status"]
            for condition in current["status"]["conditions"]
            if condition["type"] == "SlurmNodeUnhealthy"
        ] or ["False"]
        return "slurmstack.dev/unhealthy" in taints and status == "True"

    node.prints(BROKEN)
    eventually("the machine is marked", marked)
    assert "gpu-ecc" in json.dumps(machine(cluster, name)["status"]["conditions"])

    node.prints(WELL)
    node.is_back()
    eventually("the mark is gone", lambda: not marked())
