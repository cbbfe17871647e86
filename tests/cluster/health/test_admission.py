"""The reconciler can change only its own fields of Nodes and delete only pods of nodesets.

Every request is a dry run: the API server accepts or refuses the request, but stores nothing.
test_machines.py tests that the reconciler removes its taint, condition and annotation.
"""

import json
from typing import Any

import httpx
import pytest

from agents.kubernetes import MERGE, STRATEGIC, Api, KubernetesError
from agents.reconciler import disruption
from components import conventions as c
from tests.support.cluster import NAMESPACE, Cluster

Object = dict[str, Any]
POLICY = f"ValidatingAdmissionPolicy '{NAMESPACE}-reconciler'"
TAINT = {"key": c.TAINT_UNHEALTHY, "effect": "NoSchedule"}
CONDITION = {"type": c.CONDITION_UNHEALTHY, "status": "True", "reason": "SlurmDrain"}
DRY_RUN = "?dryRun=All"


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    """A client of the API server with the reconciler's account."""
    return cluster.as_account(c.RECONCILER)


@pytest.fixture
def machine(cluster: Cluster) -> Object:
    """A Node in its current state."""
    return cluster.objects("nodes")[0]


def patch(api: Api, machine: Object, body: Object) -> None:
    """Send a patch as the reconciler does. Raises KubernetesError."""
    part = "/status" if "status" in body else ""
    kind = STRATEGIC if "conditions" in body.get("status", {}) else MERGE
    path = f"/api/v1/nodes/{machine['metadata']['name']}{part}{DRY_RUN}"
    api.ask("PATCH", path, body, kind=kind)


def delete(api: Api, pod: Object) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}{DRY_RUN}"
    api.ask("DELETE", path)


def and_taints(machine: Object, *further: Object) -> Object:
    """Return a patch that replaces the taint TAINT of a Node with the taints in `further`."""
    kept = [one for one in machine["spec"].get("taints", []) if one["key"] != TAINT["key"]]
    return {"spec": {"taints": [*kept, *further]}}


def annotation(key: str) -> Object:
    return {"metadata": {"annotations": {key: "value"}}}


def condition(**fields: str) -> Object:
    return {"status": {"conditions": [{**CONDITION, **fields}]}}


def test_reconciler_may_mark_a_machine(api: Api, machine: Object) -> None:
    patch(api, machine, annotation(c.ANNOTATION_REBOOT))
    patch(api, machine, and_taints(machine, TAINT))
    patch(api, machine, and_taints(machine))
    patch(api, machine, condition())


REFUSED: dict[str, Object] = {
    "label": {"metadata": {"labels": {"example.org/pool": "theirs"}}},
    "label of slurmstack": {"metadata": {"labels": {c.LABEL_NODESET: "cpu"}}},
    "label through the status": {"metadata": {"labels": {"example.org/a": "b"}}, "status": {}},
    "annotation": annotation("example.org/annotation"),
    "other annotation of slurmstack": annotation(c.ANNOTATION_REPORT),
    "finalizer": {"metadata": {"finalizers": ["example.org/stay"]}},
    "cordon": {"spec": {"unschedulable": True}},
    "condition": condition(type="KernelDeadlock"),
    "readiness": condition(type="Ready", reason="Reconciler"),
    "readiness removed": {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}},
    "capacity": {"status": {"capacity": {"example.org/gpu": "8"}}},
    "allocatable": {"status": {"allocatable": {"example.org/gpu": "8"}}},
    "addresses": {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}},
    "port of the kubelet": {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 22}}}},
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_reconciler_cannot_change_other_fields_of_a_node(
    api: Api, machine: Object, body: Object
) -> None:
    with pytest.raises(KubernetesError, match=POLICY):
        patch(api, machine, body)


@pytest.mark.parametrize("field", ["providerID", "podCIDR"])
def test_provider_id_and_pod_cidr_cannot_change(api: Api, machine: Object, field: str) -> None:
    """The field already has a value, so the API server refuses another value from every user."""
    with pytest.raises(KubernetesError) as caught:
        patch(api, machine, {"spec": {field: "192.0.2.0/24"}})

    assert caught.value.status == httpx.codes.UNPROCESSABLE_ENTITY


@pytest.mark.parametrize(
    "taint",
    [{"key": "example.org/taint", "effect": "NoSchedule"}, {**TAINT, "effect": "NoExecute"}],
    ids=["other key", "other effect"],
)
def test_reconciler_cannot_set_other_taints(api: Api, machine: Object, taint: Object) -> None:
    with pytest.raises(KubernetesError, match=POLICY):
        patch(api, machine, and_taints(machine, taint))


def test_reconciler_can_delete_only_pods_of_nodesets(api: Api, cluster: Cluster) -> None:
    delete(api, cluster.pods(c.WORKER)[0])

    with pytest.raises(KubernetesError, match=POLICY):
        delete(api, cluster.pods(c.LOGIN)[0])


def test_reconciler_can_protect_only_pods_of_nodesets(api: Api) -> None:
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{c.BUSY_NODES}{DRY_RUN}"
    for names in (["cpu-0"], []):
        api.ask("PATCH", path, {"spec": disruption.spec(names)}, kind=MERGE)

    everything: Object = {"minAvailable": "100%", "selector": {}}
    controller = disruption.spec(["controller-0"])
    controller["selector"]["matchLabels"] = None
    for spec in (everything, controller):
        with pytest.raises(KubernetesError, match=POLICY):
            api.ask("PATCH", path, {"spec": spec}, kind=MERGE)


def test_reconciler_can_change_only_the_report_of_its_job(api: Api) -> None:
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{c.AFTER_DEPLOY}{DRY_RUN}"
    api.ask("PATCH", path, annotation(c.ANNOTATION_REPORT), kind=MERGE)

    finalizer: Object = {"metadata": {"finalizers": ["example.org/stay"]}}
    for body in ({"spec": {"parallelism": 0}}, finalizer, annotation("example.org/annotation")):
        with pytest.raises(KubernetesError, match=POLICY):
            api.ask("PATCH", path, body, kind=MERGE)


def test_admission_policy_does_not_limit_other_users(cluster: Cluster, machine: Object) -> None:
    body = {"metadata": {"labels": {"example.org/a": "b"}}, "spec": {"unschedulable": True}}
    name = machine["metadata"]["name"]

    cluster.kubectl("patch", "node", name, "--dry-run=server", "-p", json.dumps(body))


def test_api_server_reports_no_warning_about_the_admission_policy(cluster: Cluster) -> None:
    name = f"validatingadmissionpolicy/{NAMESPACE}-reconciler"
    status = json.loads(cluster.kubectl("get", name, "-o", "json")).get("status", {})

    assert "expressionWarnings" not in status.get("typeChecking", {})
