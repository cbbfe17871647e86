"""Decide on which machines Kubernetes would let a pod run.

The rules are those of kube-scheduler's plugins NodeUnschedulable, NodeAffinity, TaintToleration and
NodeResourcesFit (k8s.io/kubernetes 1.34, pkg/scheduler/framework/plugins, and
k8s.io/component-helpers, scheduling/corev1).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from agents import labels
from agents.bridge.podspec import Requirement, Spec, Taint, Term, Toleration
from agents.bridge.size import Amounts
from agents.bridge.volumes import Needs

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep out pods without a toleration."""
_NAME: Final = "metadata.name"
"""The only field of a machine that an affinity may name."""


@dataclass(frozen=True)
class Machine:
    """A node of Kubernetes."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    is_cordoned: bool
    free: Amounts
    """Allocatable amounts that no pod has requested."""
    room: Amounts
    """Allocatable amounts that no pod outside the bridge has requested. Slurm counts the pods of
    the bridge itself."""


def why_unsupported(spec: Spec) -> str:
    """Return why the bridge cannot schedule a pod at all, or "" if it can.

    Slurm does not know which pods a machine already runs, so it cannot place a pod beside or apart
    from others.
    """
    affinity = spec.affinity
    asked = {
        "a required podAffinity": affinity.pod_affinity.required,
        "a required podAntiAffinity": affinity.pod_anti_affinity.required,
        "a topologySpreadConstraint with DoNotSchedule": [
            one
            for one in spec.topology_spread_constraints
            if one.when_unsatisfiable == "DoNotSchedule"
        ],
        "resourceClaims": spec.resource_claims,
    }
    found = [name for name, value in asked.items() if value]
    if not found:
        return ""
    return f"the pod has {' and '.join(found)}, which Slurm cannot honour; remove it from the pod"


def demands(spec: Spec, size: Amounts, volumes: Needs) -> bytes:
    """Return a key that is equal for pods that want the same of a machine."""
    return msgspec.json.encode(
        (spec.node_selector, spec.affinity, spec.tolerations, size, volumes.terms)
    )


def why_never(spec: Spec, machine: Machine) -> str:
    """Return why a pod may not run on a machine, even if the machine is empty."""
    taints = [*machine.taints, *([_UNSCHEDULABLE] if machine.is_cordoned else [])]
    for taint in taints:
        if taint.key == labels.BRIDGE:
            # This taint keeps off all pods except those of the bridge.
            continue
        is_tolerated = any(_tolerates(one, taint) for one in spec.tolerations)
        if taint.effect in _KEEPS_OUT and not is_tolerated:
            return f"the pod does not tolerate the taint '{taint.key}'"
    for key, value in sorted(spec.node_selector.items()):
        if machine.labels.get(key) != value:
            return f"the machine does not have the label '{key}={value}' of nodeSelector"
    required = spec.affinity.node_affinity.required
    if required and not meets(required.node_selector_terms, machine):
        return "the machine's labels do not meet the pod's nodeAffinity"
    return ""


def why_unmounted(volumes: Needs, machine: Machine) -> str:
    """Return why a pod's volumes cannot be mounted on a machine, or "" if they can."""
    if all(meets(terms, machine) for terms in volumes.terms):
        return ""
    return "a volume of the pod cannot be mounted on the machine"


def why_full(size: Amounts, left: Amounts) -> str:
    """Return why a pod is too large for the amounts that are left, or "" if it is not."""
    for name, amount in sorted(size.items()):
        free = left.get(name, Decimal())
        if amount > free:
            return f"too little '{name}' is free in Kubernetes: {free:f} of {amount:f}"
    return ""


def meets(terms: Iterable[Term], machine: Machine) -> bool:
    """Return whether a machine meets one of the terms of a selector of machines."""
    return any(_meets_term(term, machine) for term in terms)


def _meets_term(term: Term, machine: Machine) -> bool:
    # A term without requirements selects no machine.
    return bool(term.match_expressions or term.match_fields) and (
        all(_meets(one, machine.labels) for one in term.match_expressions)
        and all(_meets(one, {_NAME: machine.name}) for one in term.match_fields)
    )


def _meets(requirement: Requirement, values: Mapping[str, str]) -> bool:
    value, wanted = values.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compare(operator, value or "", wanted)
    return False


def _compare(operator: str, value: str, wanted: Sequence[str]) -> bool:
    """Compare whole numbers. Texts that are no numbers never match."""
    try:
        (limit,) = map(int, wanted)
        return int(value) > limit if operator == "Gt" else int(value) < limit
    except ValueError:
        return False


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    # Without a key, only `Exists` tolerates taints.
    return bool(toleration.key) and toleration.value == taint.value
