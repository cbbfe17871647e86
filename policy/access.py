"""Rules about access to the network and to Kubernetes' API, and about the pods that a namespace
admits."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any

from policy.allowed import Allowed
from policy.manifests import at, kind, namespace, pod, selects
from policy.rule import About, Resource, Rule, StackRule, over

# --- Network -------------------------------------------------------------------------------------


def _load_balancers(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) != "Service":
        return
    spec = at(resource.props, "spec") or {}
    if spec.get("externalIPs"):
        yield (
            "spec.externalIPs is set, and source ranges do not limit these addresses, so "
            "all clients can reach them"
        )
    if spec.get("type") == "LoadBalancer":
        ranges = tuple(spec.get("loadBalancerSourceRanges") or ())
        if not ranges:
            yield (
                "spec.loadBalancerSourceRanges is empty, so the load balancer accepts "
                "clients from all addresses"
            )
        for one in _whole_worlds(ranges):
            yield f"the source ranges {', '.join(map(str, ranges))} cover all addresses ({one})"


def _whole_worlds(ranges: Sequence[Any]) -> Iterator[str]:
    """Yield 0.0.0.0/0 if the ranges together contain all IPv4 addresses, and ::/0 if they contain
    all IPv6 addresses."""
    known = [one for one in map(_network, ranges) if one]
    fours = collapse_addresses(one for one in known if isinstance(one, IPv4Network))
    sixes = collapse_addresses(one for one in known if isinstance(one, IPv6Network))
    yield from (str(one) for one in fours if not one.prefixlen)
    yield from (str(one) for one in sixes if not one.prefixlen)


def _network(text: Any) -> IPv4Network | IPv6Network | None:
    """Parse an address range. Return None if the range is not known yet, or is invalid: Kubernetes
    itself refuses invalid ranges."""
    try:
        return ip_network(str(text), strict=False)
    except ValueError:
        return None


LOAD_BALANCERS = Rule(
    About(
        "load-balancers",
        "A load balancer accepts only listed source ranges",
        "attackers soon try to log in to a login node that is open to all addresses",
        "remove spec.externalIPs, and list only your users' address ranges in "
        "spec.loadBalancerSourceRanges (for login nodes: login.source_ranges in the stack's "
        "config)",
    ),
    _load_balancers,
)


_SELECTORS = {"CiliumNetworkPolicy": "endpointSelector", "NetworkPolicy": "podSelector"}
"""Kinds of network policies, each with the name of its field that selects pods."""


def _network_policies(resources: Sequence[Resource], _: Allowed) -> Iterator[tuple[Resource, str]]:
    policies = [one for one in resources if kind(one) in _SELECTORS]

    def judge(workload: Resource) -> Iterator[tuple[Resource, str]]:
        found = pod(workload)
        if found is None or found.spec.get("hostNetwork"):
            return  # no NetworkPolicy applies to pods in the node's network; see HOST_NAMESPACES
        labels = found.metadata.get("labels") or {}
        held = {
            direction
            for policy in policies
            if namespace(policy) == namespace(workload)
            and selects(at(policy.props, "spec", _SELECTORS[kind(policy)]) or {}, labels)
            for direction in _directions(at(policy.props, "spec") or {})
        }
        for direction in ("Ingress", "Egress"):
            if direction not in held:
                yield (
                    workload,
                    (
                        f"no network policy of the type {direction} in the namespace selects the "
                        "pods"
                    ),
                )

    return over(resources, judge)


def _directions(spec: Mapping[str, Any]) -> tuple[str, ...]:
    if types := tuple(spec.get("policyTypes") or ()):
        return types
    # With a CiliumNetworkPolicy, Cilium denies by default in each direction (ingress or egress) for
    # which the policy has a rule. Even if a policy has only a deny rule for a direction, Cilium
    # denies all other traffic in this direction.
    cilium = "endpointSelector" in spec
    inwards = not cilium or spec.get("ingress") or spec.get("ingressDeny")
    outwards = spec.get("egress") or spec.get("egressDeny")
    return (*(["Ingress"] if inwards else []), *(["Egress"] if outwards else []))


NETWORK_POLICIES = StackRule(
    About(
        "network-policies",
        "Network policies cover both directions of every workload's traffic",
        "pods without a network policy can reach everything, and everything can reach them",
        "give the pods labels that a network policy of this type selects, or add such a "
        "network policy",
    ),
    _network_policies,
)


# --- Kubernetes' API -----------------------------------------------------------------------------

_TAKES_OVER = ("bind", "escalate", "impersonate")
"""Verbs that allow an account to get the rights of other accounts."""
_ALL_POWERFUL = ("admin", "cluster-admin")


def _rbac(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) in ("Role", "ClusterRole"):
        yield from over(at(resource.props, "rules") or (), _too_much)
    if kind(resource) in ("RoleBinding", "ClusterRoleBinding"):
        role = at(resource.props, "roleRef", "name")
        if role in _ALL_POWERFUL:
            yield f"the binding grants the role {role}, which has nearly all rights"


def _too_much(rule: Mapping[str, Any]) -> Iterator[str]:
    for key in ("apiGroups", "nonResourceURLs", "resources", "verbs"):
        if any("*" in one for one in rule.get(key) or ()):
            yield f"a rule of the role has a wildcard (*) in '{key}'"
    for verb in rule.get("verbs") or ():
        if verb in _TAKES_OVER:
            yield f"a rule of the role has the verb '{verb}'"


RBAC = Rule(
    About(
        "rbac",
        "Roles list each right, and do not let an account give itself or others further rights",
        "wildcards, verbs such as escalate, and roles such as cluster-admin allow "
        "unintended actions, such as reading Secrets",
        "list only the needed resources and verbs in a role, and bind such a role instead "
        "of admin or cluster-admin",
    ),
    _rbac,
)

_LEVELS = ("privileged", "baseline", "restricted")
_POD_SECURITY = "pod-security.kubernetes.io"


def _namespaces(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) == "Namespace":
        labels = at(resource.props, "metadata", "labels") or {}
        if labels.get(f"{_POD_SECURITY}/enforce") not in _LEVELS:
            yield f"the label {_POD_SECURITY}/enforce is not one of {', '.join(_LEVELS)}"
        if labels.get(f"{_POD_SECURITY}/audit") not in _LEVELS[1:]:
            yield f"the label {_POD_SECURITY}/audit is neither baseline nor restricted"


NAMESPACES = Rule(
    About(
        "namespaces",
        "Each namespace has labels that say which pods Kubernetes admits, and that make Kubernetes"
        " log pods that break the Pod Security level `baseline`",
        "without these labels, defaults of the cluster decide which pods may start",
        f"set the label {_POD_SECURITY}/enforce to privileged, baseline or restricted, and "
        f"the label {_POD_SECURITY}/audit to baseline or restricted",
    ),
    _namespaces,
)
