"""Tests of the admission policy for the reconciler: which requests its CEL expressions allow, and
which they refuse."""

import copy
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from cel_expr_python import cel

from agents.kubernetes import Api
from agents.labels import HOSTNAME
from agents.reconciler import disruption
from agents.reconciler.actions import Action, Mark, Unmark, Withdraw
from agents.reconciler.carry import Carrier, Kept, Place
from agents.reconciler.observed import Condition, Machine
from agents.reconciler.plan import Plan
from agents.slurm import Client
from components import conventions as c
from components.health import admission
from components.health.admission import Limits

Object = dict[str, Any]
Edit = Callable[[Object], object]
OURS = {c.LABEL_NODESET: "cpu"}
ANYWHERE = Limits(reboots=True, deletes=False, machines=({},))
LABELLED = Limits(reboots=True, deletes=True, machines=(OURS, {c.LABEL_NODESET: "gpu"}))
TAINT = {"key": c.TAINT_UNHEALTHY, "effect": "NoSchedule"}
CONDITION = {"type": c.CONDITION_UNHEALTHY, "status": "True", "message": "cpu-1: gpu-xid"}
OTHER_TAINT = {"key": "example.org/reserved", "value": "them", "effect": "NoSchedule"}
NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "machine-1",
        "uid": "u3",
        "resourceVersion": "9",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"kubernetes.io/hostname": "machine-1"},
        "annotations": {"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/cri.sock"},
        "managedFields": [{"manager": "kubelet", "operation": "Update"}],
    },
    "spec": {
        "podCIDR": "10.0.1.0/24",
        "podCIDRs": ["10.0.1.0/24"],
        "providerID": "cloud://1",
        "taints": [OTHER_TAINT],
    },
    "status": {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
        "allocatable": {"cpu": "8"},
        "capacity": {"cpu": "8"},
        "conditions": [
            {"type": "DiskPressure", "status": "False"},
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {"bootID": "b1"},
    },
}


# --- Evaluation of policies, as in Kubernetes -----------------------------------------------------

_TYPES = dict.fromkeys(("object", "oldObject", "request", "variables"), cel.Type.DYN)


@functools.cache
def compiled(expression: str) -> cel.Expression:
    return cel.NewEnv(variables=_TYPES).compile(expression)


def refusals(
    limits: Limits, operation: str, old: Object | None, new: Object | None, resource: str = "nodes"
) -> list[str]:
    """Return the reasons why the policy refuses a request. If an expression cannot be evaluated,
    this is also a reason."""
    request = {"operation": operation, "resource": {"resource": resource}}
    bindings: Object = {"object": new, "oldObject": old, "request": request, "variables": {}}
    for name, expression in admission.variables(limits):
        value = compiled(expression).eval(data=bindings)
        # A variable that cannot be evaluated is an error only if an expression uses it.
        if value.type() != cel.Type.ERROR:
            bindings["variables"][name] = value.plain_value()
    return [
        message
        for expression, message in admission.validations(limits)
        if compiled(expression).eval(data=bindings).value() is not True
    ]


def update(limits: Limits, edit: Edit, before: Object = NODE) -> list[str]:
    """Return the reasons why the policy refuses an edit of a Node."""
    after = copy.deepcopy(before)
    edit(after)
    return refusals(limits, "UPDATE", before, after)


def labelled(node: Object, labels: Mapping[str, str] = OURS) -> Object:
    return {**node, "metadata": {**node["metadata"], "labels": dict(labels)}}


def marked(node: Object = NODE) -> Object:
    """Return a Node with the reconciler's annotation, taint and condition."""
    found = copy.deepcopy(node)
    found["metadata"]["annotations"][c.ANNOTATION_REBOOT] = "b1 1"
    found["spec"]["taints"].append(TAINT)
    found["status"]["conditions"].append(CONDITION)
    return found


# --- Fields of Nodes -----------------------------------------------------------------------------


def test_reconciler_may_set_and_remove_its_annotation_taint_and_condition() -> None:
    assert refusals(ANYWHERE, "UPDATE", NODE, marked()) == []
    assert refusals(ANYWHERE, "UPDATE", marked(), NODE) == []


def test_reconciler_may_mark_a_node_without_annotations_or_taints() -> None:
    bare = copy.deepcopy(NODE)
    for part, key in (
        ("metadata", "annotations"),
        ("metadata", "labels"),
        ("spec", "taints"),
        ("status", "conditions"),
    ):
        del bare[part][key]
    after = copy.deepcopy(bare)
    after["metadata"]["annotations"] = {c.ANNOTATION_REBOOT: "b1 1"}
    after["spec"]["taints"] = [TAINT]
    after["status"]["conditions"] = [CONDITION]

    assert refusals(ANYWHERE, "UPDATE", bare, after) == []
    assert refusals(ANYWHERE, "UPDATE", after, bare) == []


def test_api_server_may_update_its_own_metadata_of_a_node() -> None:
    changed = {"resourceVersion": "10", "generation": 2, "managedFields": []}
    assert update(ANYWHERE, lambda node: node["metadata"].update(changed)) == []


def test_reconciler_may_keep_a_taint_that_an_operator_changed() -> None:
    node = marked()
    node["spec"]["taints"][-1] = {**TAINT, "effect": "NoExecute"}

    def withdraw(after: Object) -> None:
        del after["metadata"]["annotations"][c.ANNOTATION_REBOOT]

    assert update(ANYWHERE, withdraw, node) == []


def put(*path: str, value: Any) -> Edit:
    """Set a key of a Node."""

    def edit(node: Object) -> None:
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return edit


def drop(*path: str) -> Edit:
    """Remove a key of a Node."""

    def edit(node: Object) -> None:
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]

    return edit


def taints(*listed: Object) -> Edit:
    return put("spec", "taints", value=list(listed))


def conditions(*listed: Object) -> Edit:
    return put("status", "conditions", value=list(listed))


READY = NODE["status"]["conditions"][1]
PRESSURE = NODE["status"]["conditions"][0]
REFUSED: dict[str, Edit] = {
    "a new top-level field": put("secrets", value={}),
    "a label": put("metadata", "labels", "example.org/pool", value="theirs"),
    "a label's value": put("metadata", "labels", "kubernetes.io/hostname", value="machine-2"),
    "removed labels": drop("metadata", "labels"),
    "the label of a nodeset": put("metadata", "labels", c.LABEL_NODESET, value="cpu"),
    "another annotation": put("metadata", "annotations", "example.org/a", value="b"),
    "an annotation of this project that belongs to another object": put(
        "metadata", "annotations", c.ANNOTATION_REPORT, value="b"
    ),
    "removed annotations": drop("metadata", "annotations"),
    "an annotation's value": put(
        "metadata", "annotations", "kubeadm.alpha.kubernetes.io/cri-socket", value="x"
    ),
    "a finalizer": put("metadata", "finalizers", value=["example.org/stay"]),
    "an owner": put("metadata", "ownerReferences", value=[{"kind": "Pod", "name": "gone"}]),
    "a cordon": put("spec", "unschedulable", value=True),
    "providerID": put("spec", "providerID", value="cloud://2"),
    "removed providerID": drop("spec", "providerID"),
    "podCIDR": put("spec", "podCIDR", value="10.0.2.0/24"),
    "podCIDRs": put("spec", "podCIDRs", value=["10.0.1.0/24", "10.0.2.0/24"]),
    "another taint": taints(OTHER_TAINT, {"key": "example.org/x", "effect": "NoSchedule"}),
    "an evicting taint": taints(OTHER_TAINT, {**TAINT, "effect": "NoExecute"}),
    "removed taints": drop("spec", "taints"),
    "the reconciler's taint in place of another": taints(TAINT),
    "a taint's value": taints({**OTHER_TAINT, "value": "us"}),
    "another condition": conditions(PRESSURE, READY, {"type": "KernelDeadlock", "status": "True"}),
    "a condition's status": conditions(PRESSURE, {**READY, "status": "False"}),
    "a condition's time": conditions(PRESSURE, {**READY, "lastHeartbeatTime": "2027-01-01"}),
    "a removed condition": conditions(PRESSURE, CONDITION),
    "capacity": put("status", "capacity", "example.org/gpu", value="8"),
    "allocatable": put("status", "allocatable", "cpu", value="64"),
    "an address": put("status", "addresses", value=[]),
    "the kubelet's port": put("status", "daemonEndpoints", "kubeletEndpoint", "Port", value=22),
    "the boot ID": put("status", "nodeInfo", "bootID", value="b2"),
    "a new status field": put("status", "phase", value="Terminated"),
}


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("before", [NODE, marked()], ids=["unmarked", "marked"])
def test_reconciler_cannot_edit_other_node_fields(before: Object, edit: Edit) -> None:
    assert update(ANYWHERE, edit, before) != []


# --- Nodes that the reconciler may mark ----------------------------------------------------------


def with_annotation(value: str) -> Edit:
    return put("metadata", "annotations", c.ANNOTATION_REBOOT, value=value)


MARKS: dict[str, Edit] = {
    "annotation": with_annotation("b1 1"),
    "taint": taints(OTHER_TAINT, TAINT),
    "condition": conditions(PRESSURE, READY, CONDITION),
}


@pytest.mark.parametrize("edit", MARKS.values(), ids=MARKS)
def test_reconciler_may_mark_only_machines_with_a_nodesets_labels(edit: Edit) -> None:
    for nodeset in ("cpu", "gpu"):
        assert update(LABELLED, edit, labelled(NODE, {c.LABEL_NODESET: nodeset})) == []
    for labels in ({}, {c.LABEL_NODESET: "another"}, {"example.org/nodeset": "cpu"}):
        assert update(LABELLED, edit, labelled(NODE, labels)) != []


def test_reconciler_may_unmark_a_machine_that_left_its_nodeset() -> None:
    assert refusals(LABELLED, "UPDATE", marked(), NODE) == []
    assert refusals(LABELLED, "UPDATE", marked(), marked()) == []


def test_reconciler_may_not_change_marks_outside_its_nodesets() -> None:
    changed = {**CONDITION, "message": "another"}
    assert update(LABELLED, conditions(PRESSURE, READY, changed), marked()) != []
    assert update(LABELLED, with_annotation("b2 2"), marked()) != []


def test_nodeset_without_labels_allows_marks_on_all_machines() -> None:
    limits = Limits(reboots=True, deletes=False, machines=(OURS, {}))
    assert refusals(limits, "UPDATE", NODE, marked()) == []


def test_machine_needs_all_labels_of_its_nodeset() -> None:
    both = {**OURS, f"{c.DOMAIN}/rack": "1"}
    limits = Limits(reboots=True, deletes=False, machines=(both,))

    assert refusals(limits, "UPDATE", labelled(NODE), labelled(marked())) != []
    assert refusals(limits, "UPDATE", labelled(NODE, both), labelled(marked(), both)) == []


def test_own_labels_have_only_keys_of_this_project() -> None:
    labels = {"nvidia.com/gpu.present": "true", **OURS, "example.org/slurmstack.dev/x": "y"}
    assert admission.own_labels(labels) == OURS


def test_policy_refuses_reboots_if_no_ladder_contains_them() -> None:
    limits = Limits(reboots=False, deletes=False, machines=({},))

    assert update(limits, with_annotation("b1 1")) != []
    assert update(limits, with_annotation("b2 2"), marked()) != []
    assert update(limits, drop("metadata", "annotations", c.ANNOTATION_REBOOT), marked()) == []
    assert update(limits, taints(OTHER_TAINT), marked()) == []


# --- Other requests ------------------------------------------------------------------------------


def test_reconciler_may_delete_nodes_only_if_it_replaces_machines() -> None:
    assert refusals(ANYWHERE, "DELETE", NODE, None) != []
    assert refusals(LABELLED, "DELETE", NODE, None) != []
    assert refusals(LABELLED, "DELETE", labelled(NODE), None) == []


def test_reconciler_may_not_create_nodes() -> None:
    for limits in (ANYWHERE, LABELLED):
        assert refusals(limits, "CREATE", None, labelled(NODE)) != []


@pytest.mark.parametrize(
    ("labels", "deleted"),
    [
        ({c.LABEL_COMPONENT: c.WORKER}, True),
        ({c.LABEL_COMPONENT: c.CONTROLLER}, False),
        ({}, False),
        (None, False),
    ],
)
def test_reconciler_may_delete_only_pods_of_nodesets(
    labels: dict[str, str] | None, deleted: bool
) -> None:
    pod = {"metadata": {"name": "cpu-1", **({} if labels is None else {"labels": labels})}}
    assert (refusals(ANYWHERE, "DELETE", pod, None, "pods") == []) is deleted


GATE = {"name": c.GATE_MACHINE}
GATED: Object = {
    "metadata": {
        "name": "cpu-1",
        "labels": {c.LABEL_COMPONENT: c.WORKER},
        "resourceVersion": "1",
    },
    "spec": {
        "containers": [{"name": "slurmd", "image": "worker:1"}],
        "nodeSelector": {"example.org/pool": "cpu"},
        "schedulingGates": [GATE],
        "tolerations": [],
    },
}


def update_pod(*edits: Edit, before: Object = GATED) -> list[str]:
    after = copy.deepcopy(before)
    for edit in edits:
        edit(after)
    return refusals(ANYWHERE, "UPDATE", before, after, "pods")


CHOSEN = put("spec", "nodeSelector", HOSTNAME, value="machine-1")
STARTS = drop("spec", "schedulingGates")


def test_reconciler_may_remove_its_gate_and_choose_the_machine() -> None:
    bare = copy.deepcopy(GATED)
    del bare["spec"]["nodeSelector"]
    version = put("metadata", "resourceVersion", value="2")

    assert update_pod(STARTS, version) == []
    assert update_pod(STARTS, CHOSEN, version) == []
    only = put("spec", "nodeSelector", value={HOSTNAME: "machine-1"})
    assert update_pod(STARTS, only, before=bare) == []


@pytest.mark.parametrize(
    "edit",
    [
        put("spec", "containers", value=[{"name": "slurmd", "image": "other:1"}]),
        put("spec", "nodeSelector", value={HOSTNAME: "machine-1"}),
        put("spec", "nodeSelector", "example.org/pool", value="gpu"),
        put("spec", "tolerations", value=[{"operator": "Exists"}]),
        put("spec", "serviceAccountName", value="reconciler"),
        put("metadata", "labels", c.LABEL_COMPONENT, value=c.CONTROLLER),
        put("metadata", "annotations", value={"example.org/a": "b"}),
        put("metadata", "ownerReferences", value=[]),
    ],
)
def test_reconciler_may_change_nothing_else_of_a_gated_pod(edit: Edit) -> None:
    assert update_pod(STARTS, CHOSEN, edit) != []


def test_reconciler_may_not_remove_gates_of_other_controllers() -> None:
    other = {"name": "kueue.x-k8s.io/admission"}
    both = copy.deepcopy(GATED)
    both["spec"]["schedulingGates"] = [other, GATE]
    without_ours = put("spec", "schedulingGates", value=[other])

    assert update_pod(without_ours, CHOSEN, before=both) == []
    assert update_pod(STARTS, CHOSEN, before=both) != []
    assert update_pod(put("spec", "schedulingGates", value=[GATE]), before=both) != []
    assert update_pod(CHOSEN, before=both) != []


@pytest.mark.parametrize("gates", [[], [{"name": "example.org/quota"}]])
def test_reconciler_may_not_change_pods_without_its_gate(gates: list[Object]) -> None:
    other = copy.deepcopy(GATED)
    other["spec"]["schedulingGates"] = gates

    assert update_pod(CHOSEN, before=other) != []


def test_reconciler_may_not_change_gated_pods_of_other_components() -> None:
    other = copy.deepcopy(GATED)
    other["metadata"]["labels"][c.LABEL_COMPONENT] = c.LOGIN

    assert update_pod(STARTS, before=other) != []


# --- The budget of nodes with jobs ---------------------------------------------------------------


def budget(spec: Object) -> Object:
    metadata = {"name": c.BUSY_NODES, "labels": {"a": "b"}, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {k: v for k, v in spec.items() if v is not None}}


def update_budget(before: Object, after: Object) -> list[str]:
    return refusals(ANYWHERE, "UPDATE", before, after, "poddisruptionbudgets")


EMPTY = budget({})
FULL = budget(disruption.spec(["cpu-1", "gpu-3"]))


def test_reconciler_may_protect_nodes_with_jobs() -> None:
    none = budget(disruption.spec([]))
    for before in (EMPTY, FULL, none):
        for after in (FULL, none):
            assert update_budget(before, after) == []


ONE_OF = FULL["spec"]["selector"]["matchExpressions"][0]


@pytest.mark.parametrize(
    "edit",
    [
        put("spec", "minAvailable", value=3),
        put("spec", "minAvailable", value="100%"),
        drop("spec", "minAvailable"),
        put("spec", "maxUnavailable", value=0),
        put("spec", "unhealthyPodEvictionPolicy", value="AlwaysAllow"),
        put("spec", "selector", value={}),
        put("spec", "selector", "matchLabels", value={}),
        put("spec", "selector", "matchLabels", value={c.LABEL_COMPONENT: c.CONTROLLER}),
        drop("spec", "selector", "matchLabels"),
        drop("spec", "selector", "matchExpressions"),
        put("spec", "selector", "matchExpressions", value=[{**ONE_OF, "operator": "NotIn"}]),
        put("spec", "selector", "matchExpressions", value=[{**ONE_OF, "key": c.LABEL_NODESET}]),
        put("spec", "selector", "matchExpressions", value=[ONE_OF, ONE_OF]),
        put("metadata", "labels", "a", value="c"),
        put("metadata", "finalizers", value=["example.org/stay"]),
        put("metadata", "annotations", value={"a": "b"}),
        drop("spec", "selector"),
    ],
)
def test_reconcilers_budget_may_protect_only_pods_of_nodesets(edit: Edit) -> None:
    after = copy.deepcopy(FULL)
    edit(after)
    assert update_budget(EMPTY, after) != []


# --- The Job after a deploy ----------------------------------------------------------------------


JOB: Object = {
    "metadata": {"name": c.AFTER_DEPLOY, "resourceVersion": "1", "annotations": {"a": "b"}},
    "spec": {"parallelism": 1, "template": {"spec": {"containers": [{"image": "agents:1"}]}}},
    "status": {"active": 1},
}
REPORT = put("metadata", "annotations", c.ANNOTATION_REPORT, value="all is well")


def update_job(*edits: Edit, before: Object = JOB) -> list[str]:
    after = copy.deepcopy(before)
    for edit in edits:
        edit(after)
    return refusals(ANYWHERE, "UPDATE", before, after, "jobs")


def test_reconciler_may_write_the_report_of_its_job() -> None:
    bare = copy.deepcopy(JOB)
    del bare["metadata"]["annotations"]
    only = put("metadata", "annotations", value={c.ANNOTATION_REPORT: "all is well"})

    assert update_job(REPORT, put("metadata", "resourceVersion", value="2")) == []
    assert update_job(only, before=bare) == []


@pytest.mark.parametrize(
    "edit",
    [
        put("spec", "parallelism", value=100),
        put("spec", "suspend", value=True),
        put("spec", "template", "spec", "containers", value=[]),
        put("metadata", "finalizers", value=["example.org/stay"]),
        put("metadata", "ownerReferences", value=[]),
        put("metadata", "labels", value={"a": "b"}),
        put("metadata", "annotations", "a", value="c"),
        put("metadata", "annotations", c.ANNOTATION_REBOOT, value="c"),
        drop("metadata", "annotations", "a"),
    ],
)
def test_reconciler_may_change_nothing_else_of_its_job(edit: Edit) -> None:
    assert update_job(REPORT, edit) != []


# --- The reconciler with the policy --------------------------------------------------------------


class Kubernetes:
    """An API server with one Node that the policy protects."""

    def __init__(self, limits: Limits, node: Object) -> None:
        self.node = node
        self._limits = limits

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PATCH" and "nodes" in request.url.path:
            after = _patched(self.node, json.loads(request.content))
            if refused := refusals(self._limits, "UPDATE", self.node, after):
                return httpx.Response(422, json={"message": refused[0]})
            self.node = after
        return httpx.Response(200, json=self.node)


def _patched(node: Object, patch: Object) -> Object:
    """Apply a patch of the reconciler as RFC 7386 describes, but merge conditions by type."""
    changed = copy.deepcopy(node)
    for key, value in patch.get("metadata", {}).get("annotations", {}).items():
        changed["metadata"]["annotations"].pop(key, None)
        if value is not None:
            changed["metadata"]["annotations"][key] = value
    changed["spec"] |= patch.get("spec", {})
    new = patch.get("status", {}).get("conditions", [])
    types = {one["type"] for one in new}
    changed["status"]["conditions"] = [
        *(one for one in changed["status"]["conditions"] if one["type"] not in types),
        *(one for one in new if "$patch" not in one),
    ]
    return changed


def carry(limits: Limits, node: Object, *actions: Action) -> tuple[Object, tuple[str, ...]]:
    """Let the reconciler carry out actions. Return the changed Node, and the reconciler's notes on
    refused actions."""
    cluster = Kubernetes(limits, node)
    api = Api("http://k", lambda: "t", transport=httpx.MockTransport(cluster.answer))
    place = Place("slurm", "memory", {"apiVersion": "v1", "kind": "Job", "name": "after"})
    present = [one["type"] for one in node["status"]["conditions"]]
    machine = Machine(
        *("machine-1", "u3", "9", 0),
        taints=tuple(node["spec"]["taints"]),
        conditions={kind: Condition("True") for kind in present},
    )
    carrier = Carrier(Client("http://rest", lambda: "t"), api, place)
    plan, kept = Plan(actions, {}, (), 1, 1), Kept({}, "9", "")
    notes = carrier.carry(plan, kept, {"machine-1": machine}, ()).notes
    return cluster.node, notes


def test_policy_allows_the_reconciler_to_mark_and_unmark_a_machine() -> None:
    node, notes = carry(LABELLED, labelled(NODE), Mark("machine-1", "cpu-1: gpu-xid"))
    assert notes == ()
    assert TAINT in node["spec"]["taints"]
    assert node["status"]["conditions"][-1]["type"] == c.CONDITION_UNHEALTHY

    node, notes = carry(LABELLED, node, Unmark("machine-1"))
    assert (node, notes) == (labelled(NODE), ())


def test_policy_allows_the_reconciler_to_withdraw_a_reboot() -> None:
    node, notes = carry(ANYWHERE, marked(), Withdraw("machine-1"))

    assert notes == ()
    assert c.ANNOTATION_REBOOT not in node["metadata"]["annotations"]


def test_reconciler_reports_a_refused_action_and_continues_with_the_others() -> None:
    node, notes = carry(LABELLED, marked(), Mark("machine-1", "x"), Withdraw("machine-1"))

    assert len(notes) == 1
    assert "this Node lacks the labels" in notes[0]
    assert c.ANNOTATION_REBOOT not in node["metadata"]["annotations"]
