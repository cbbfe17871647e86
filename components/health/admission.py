"""An admission policy that limits what the reconciler, the agent that repairs nodes, may change.

Kubernetes' roles grant rights only to whole objects. An account that may patch a Node could change
the Node's labels, redirect requests to the kubelet, or evict all pods. An account that may patch a
PodDisruptionBudget could stop the eviction of any pod in the same namespace. The policy therefore
lists the fields that the reconciler may change. Its expressions are in CEL; the reference for
`object`, `oldObject` and `request` is
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from agents import labels
from components import conventions as c
from components.cel import equal_but, literal, part
from components.identity import rights
from components.pods import Spec

_BOOKKEEPING = ("generation", "managedFields", "resourceVersion")
"""Keys in an object's metadata. The API server itself changes their values in each request."""
_EFFECT = "NoSchedule"
"""Effect of the reconciler's taint. It keeps new pods without a toleration off the machine, but
evicts no running pods."""
_BUDGETS = "poddisruptionbudgets"
_PARTS: Mapping[str, tuple[str, str]] = {
    "annotations": ("metadata", "{}"),
    "taints": ("spec", "[]"),
    "conditions": ("status", "[]"),
    "nodeSelector": ("spec", "{}"),
    "schedulingGates": ("spec", "[]"),
}
"""Optional parts of a Node or pod. For each part: the field that contains it, and the value to
assume if it is absent."""


@dataclass(frozen=True)
class Limits:
    """Rights that the reconciler needs with the settings of this stack."""

    reboots: bool
    """Whether the reconciler may request the reboot of a Kubernetes node."""
    deletes: bool
    """Whether the reconciler may delete Nodes."""
    machines: tuple[Mapping[str, str], ...]
    """For each nodeset, the labels that all Kubernetes nodes of this nodeset have. The mapping is
    empty if these Kubernetes nodes have no common labels."""


def own_labels(found: Mapping[str, str]) -> dict[str, str]:
    """Return only the labels whose keys begin with slurmstack.dev/.

    Other labels can change while pods run: NVIDIA's labels, for example, change when a GPU is lost.
    If the policy required such labels, it would then refuse the taint that the reconciler must set
    on this machine.
    """
    return {key: found[key] for key in sorted(found) if key.startswith(f"{c.DOMAIN}/")}


def policy(user: pulumi.Input[str], limits: Limits) -> Spec:
    """Render the spec of the ValidatingAdmissionPolicy for requests of one user."""
    spec: Spec = {
        "matchConstraints": {
            "resourceRules": [
                rights.requests("", ["nodes", "nodes/status"], ["CREATE", "UPDATE", "DELETE"]),
                # Check updates of pods even if the reconciler's role permits no updates. When the
                # settings change, the deploy updates the role and the policy one after the other.
                # So for a moment, the new role may permit updates while the old policy still
                # applies.
                rights.requests("", ["pods"], ["UPDATE", "DELETE"]),
                rights.requests("policy", [_BUDGETS], ["UPDATE"]),
                rights.requests("batch", ["jobs"], ["UPDATE"]),
            ]
        },
        "matchConditions": [
            {
                "name": "user",
                "expression": pulumi.Output.concat("request.userInfo.username == '", user, "'"),
            }
        ],
    }
    return rights.policy(spec, variables(limits), validations(limits))


def variables(limits: Limits) -> list[tuple[str, str]]:
    """Return the variables of `validations`, with their expressions, in the order of use."""
    return [
        # Remove the types with dyn(), because CEL cannot iterate over maps that the API describes
        # as objects.
        ("before", "dyn(oldObject)"),
        ("after", "dyn(object)"),
        *(
            (f"{name}_{when}", part(f"variables.{when}.{place}", name, absent))
            for name, (place, absent) in _PARTS.items()
            for when in ("before", "after")
        ),
        ("labels", part("variables.before.metadata", "labels", "{}")),
        ("updates", "request.resource.resource == 'nodes' && request.operation == 'UPDATE'"),
        ("schedules", "request.resource.resource == 'pods' && request.operation == 'UPDATE'"),
        ("is_ours", _is_ours(limits.machines)),
    ]


def _is_ours(machines: tuple[Mapping[str, str], ...]) -> str:
    """Return an expression that is true if the Node has the labels of a nodeset's machines."""
    if not all(machines):
        return "true"
    choices = ", ".join(sorted({literal(one) for one in machines}))
    return (
        f"[{choices}].exists(choice, choice.all(key,"
        " key in variables.labels && variables.labels[key] == choice[key]))"
    )


def validations(limits: Limits) -> list[tuple[str, str]]:
    """Return expressions that must be true, each with the message of the error if it is false."""
    component = literal(c.LABEL_COMPONENT)
    of_nodeset = (
        f"request.resource.resource != 'pods' || {component} in variables.labels"
        f" && variables.labels[{component}] == {literal(c.WORKER)}"
    )
    updates = [*_limits_of_fields(), *_limits_by_node(limits)]
    return [
        *((f"!variables.updates || ({text})", message) for text, message in updates),
        (
            "request.resource.resource != 'nodes' || request.operation == 'UPDATE'"
            + (" || request.operation == 'DELETE' && variables.is_ours" if limits.deletes else ""),
            "the reconciler may not create or delete this Node",
        ),
        (of_nodeset, "the reconciler may change and delete only pods of nodesets"),
        (
            f"!variables.schedules || ({_schedules()})",
            (
                "the reconciler may only let a gated pod start: it may remove this project's"
                " scheduling gate from the pod and choose the pod's machine, but change nothing"
                " else"
            ),
        ),
        (
            f"request.resource.resource != {literal(_BUDGETS)} || ({_protects_nodes()})",
            (
                "the reconciler's PodDisruptionBudget may select only pods of nodesets, and must"
                " list them by name"
            ),
        ),
        (
            f"request.resource.resource != 'jobs' || ({_reports()})",
            f"the reconciler may change only the annotation {c.ANNOTATION_REPORT} of its Job",
        ),
    ]


def _schedules() -> str:
    """Return an expression that is true if an update of a pod only removes the project's scheduling
    gate and chooses a machine."""
    gates, gate = "variables.schedulingGates_before", literal(c.GATE_MACHINE)
    return " && ".join(
        (
            f"{gates}.exists(one, one.name == {gate})",
            f"{gates}.filter(one, one.name != {gate}) == variables.schedulingGates_after",
            equal_but(f"{_BEFORE}.metadata", f"{_AFTER}.metadata", *_BOOKKEEPING),
            equal_but(f"{_BEFORE}.spec", f"{_AFTER}.spec", "nodeSelector", "schedulingGates"),
            equal_but(
                "variables.nodeSelector_before", "variables.nodeSelector_after", labels.HOSTNAME
            ),
        )
    )


def _protects_nodes() -> str:
    """Return an expression that is true if a budget has the form that
    agents/reconciler/disruption.py writes.

    A budget without a selector selects no pods.
    """
    spec, selector = f"{_AFTER}.spec", f"{_AFTER}.spec.selector"
    workers = literal({c.LABEL_COMPONENT: c.WORKER})
    by_name = (
        f"{selector}.matchExpressions.all(one,"
        f" one.key == {literal(labels.POD)} && one.operator == 'In'"
        f" && {spec}.minAvailable == size(one.values))"
    )
    some = " && ".join(
        (
            f"{selector}.all(key, key in ['matchLabels', 'matchExpressions'])",
            f"has({selector}.matchLabels) && has({selector}.matchExpressions)",
            f"{selector}.matchLabels == {workers}",
            f"size({selector}.matchExpressions) == 1",
            by_name,
        )
    )
    return " && ".join(
        (
            equal_but(f"{_BEFORE}.metadata", f"{_AFTER}.metadata", *_BOOKKEEPING),
            equal_but(f"{_BEFORE}.spec", spec, "minAvailable", "selector"),
            f"has({spec}.minAvailable)",
            f"(has({selector}) ? {some} : {spec}.minAvailable == 0)",
        )
    )


def _reports() -> str:
    """Return an expression that is true if an update of a Job changes only the annotation with its
    report."""
    return " && ".join(
        (
            equal_but(_BEFORE, _AFTER, "metadata"),
            equal_but(f"{_BEFORE}.metadata", f"{_AFTER}.metadata", "annotations", *_BOOKKEEPING),
            equal_but(_OLD_ANNOTATIONS, _NEW_ANNOTATIONS, c.ANNOTATION_REPORT),
        )
    )


_BEFORE, _AFTER = "variables.before", "variables.after"
_OLD_ANNOTATIONS, _NEW_ANNOTATIONS = "variables.annotations_before", "variables.annotations_after"
_OLD_TAINTS, _NEW_TAINTS = "variables.taints_before", "variables.taints_after"
_OLD_CONDITIONS, _NEW_CONDITIONS = "variables.conditions_before", "variables.conditions_after"


def _limits_of_fields() -> list[tuple[str, str]]:
    """Return the validations that limit which fields of a Node may change."""
    taint, condition = literal(c.TAINT_UNHEALTHY), literal(c.CONDITION_UNHEALTHY)
    other_taints = (
        f"{_OLD_TAINTS}.filter(one, one.key != {taint})"
        f" == {_NEW_TAINTS}.filter(one, one.key != {taint})"
        f" && {_NEW_TAINTS}.all(one, one.key != {taint} || one in {_OLD_TAINTS}"
        f" || one.effect == {literal(_EFFECT)})"
    )
    other_conditions = (
        f"{_OLD_CONDITIONS}.filter(one, one.type != {condition})"
        f" == {_NEW_CONDITIONS}.filter(one, one.type != {condition})"
    )
    return [
        (
            equal_but(_BEFORE, _AFTER, "metadata", "spec", "status"),
            "the reconciler may change only metadata, spec and status of a Node",
        ),
        (
            equal_but(f"{_BEFORE}.metadata", f"{_AFTER}.metadata", "annotations", *_BOOKKEEPING),
            "the reconciler may change only annotations in a Node's metadata",
        ),
        (
            equal_but(_OLD_ANNOTATIONS, _NEW_ANNOTATIONS, c.ANNOTATION_REBOOT),
            f"the reconciler may change only the annotation {c.ANNOTATION_REBOOT} of a Node",
        ),
        (
            equal_but(f"{_BEFORE}.spec", f"{_AFTER}.spec", "taints"),
            "the reconciler may change only taints in a Node's spec",
        ),
        (
            other_taints,
            f"the reconciler may change only the taint {c.TAINT_UNHEALTHY}:{_EFFECT} of a Node",
        ),
        (
            equal_but(f"{_BEFORE}.status", f"{_AFTER}.status", "conditions"),
            "the reconciler may change only conditions in a Node's status",
        ),
        (
            other_conditions,
            f"the reconciler may change only the condition {c.CONDITION_UNHEALTHY} of a Node",
        ),
    ]


def _limits_by_node(limits: Limits) -> list[tuple[str, str]]:
    """Return the validations that limit which Nodes may get the project's fields.

    These fields are an annotation, a taint and a condition.
    """
    annotation = literal(c.ANNOTATION_REBOOT)
    taint, condition = literal(c.TAINT_UNHEALTHY), literal(c.CONDITION_UNHEALTHY)
    no_new_request = (
        f"(!({annotation} in {_NEW_ANNOTATIONS}) || {annotation} in {_OLD_ANNOTATIONS}"
        f" && {_NEW_ANNOTATIONS}[{annotation}] == {_OLD_ANNOTATIONS}[{annotation}])"
    )
    # The reconciler may remove the project's fields from all Nodes, but set them only on
    # machines of nodesets.
    on_ours = (
        f"variables.is_ours || {no_new_request}"
        f" && {_NEW_TAINTS}.all(one, one.key != {taint} || one in {_OLD_TAINTS})"
        f" && {_NEW_CONDITIONS}.all(one, one.type != {condition} || one in {_OLD_CONDITIONS})"
    )
    found = [
        (
            on_ours,
            (
                "this Node lacks the labels of a nodeset's machines, so the reconciler may not mark"
                " this Node; add the labels with `kubectl label node`"
            ),
        )
    ]
    if not limits.reboots:
        found.append(
            (
                no_new_request,
                (
                    "the reconciler may not request a reboot, because no list of repairs has the"
                    " step reboot; add the step to reconciler.ladder or reconciler.ladders"
                ),
            )
        )
    return found
