"""Rules about access: to the network, to Kubernetes' API, and of pods to namespaces."""

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
        yield "it has externalIPs, which accept all clients"
    if spec.get("type") == "LoadBalancer":
        ranges = tuple(spec.get("loadBalancerSourceRanges") or ())
        if not ranges:
            yield "it is a load balancer without source ranges, open to all addresses"
        for one in _whole_worlds(ranges):
            yield f"its source ranges {', '.join(map(str, ranges))} cover all addresses, {one}"


def _whole_worlds(ranges: Sequence[Any]) -> Iterator[str]:
    """Yield 0.0.0.0/0 and ::/0, each if the ranges together cover it."""
    known = [one for one in map(_network, ranges) if one]
    fours = collapse_addresses(one for one in known if isinstance(one, IPv4Network))
    sixes = collapse_addresses(one for one in known if isinstance(one, IPv6Network))
    yield from (str(one) for one in fours if not one.prefixlen)
    yield from (str(one) for one in sixes if not one.prefixlen)


def _network(text: Any) -> IPv4Network | IPv6Network | None:
    """Parse a range; return None if it is not known yet, or invalid, which Kubernetes refuses."""
    try:
        return ip_network(str(text), strict=False)
    except ValueError:
        return None


LOAD_BALANCERS = Rule(
    About(
        "load-balancers",
        "A load balancer accepts only listed source ranges",
        "attackers soon try to log in to a login node that is open to all addresses",
        "set loadBalancerSourceRanges (for login nodes: login.source_ranges in the stack's config)",
    ),
    _load_balancers,
)


_SELECTORS = {"CiliumNetworkPolicy": "endpointSelector", "NetworkPolicy": "podSelector"}
"""Kinds of policies, with the field by which each selects pods."""


def _network_policies(resources: Sequence[Resource], _: Allowed) -> Iterator[tuple[Resource, str]]:
    policies = [one for one in resources if kind(one) in _SELECTORS]

    def judge(workload: Resource) -> Iterator[tuple[Resource, str]]:
        found = pod(workload)
        if found is None or found.spec.get("hostNetwork"):
            return  # NetworkPolicies do not apply to the node's network; another rule covers it
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
                yield workload, f"no network policy in its namespace covers its pods' {direction}"

    return over(resources, judge)


def _directions(spec: Mapping[str, Any]) -> tuple[str, ...]:
    if types := tuple(spec.get("policyTypes") or ()):
        return types
    # Cilium's policies are allow lists: even a deny rule causes everything else to be denied.
    cilium = "endpointSelector" in spec
    inwards = not cilium or spec.get("ingress") or spec.get("ingressDeny")
    outwards = spec.get("egress") or spec.get("egressDeny")
    return (*(["Ingress"] if inwards else []), *(["Egress"] if outwards else []))


NETWORK_POLICIES = StackRule(
    About(
        "network-policies",
        "Network policies cover both directions of the traffic of every workload",
        "pods without a network policy can reach everything, and everything can reach them",
        "give the pods labels that a policy selects, or add a policy for them",
    ),
    _network_policies,
)


# --- Kubernetes' API -----------------------------------------------------------------------------

_TAKES_OVER = ("bind", "escalate", "impersonate")
"""Verbs that give an account the rights of others."""
_ALL_POWERFUL = ("admin", "cluster-admin")


def _rbac(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) in ("Role", "ClusterRole"):
        yield from over(at(resource.props, "rules") or (), _too_much)
    if kind(resource) in ("RoleBinding", "ClusterRoleBinding"):
        role = at(resource.props, "roleRef", "name")
        if role in _ALL_POWERFUL:
            yield f"it grants the role {role}"


def _too_much(rule: Mapping[str, Any]) -> Iterator[str]:
    for key in ("apiGroups", "nonResourceURLs", "resources", "verbs"):
        if any("*" in one for one in rule.get(key) or ()):
            yield f"a rule has a wildcard in its {key}"
    for verb in rule.get("verbs") or ():
        if verb in _TAKES_OVER:
            yield f"a rule has the verb {verb}"


RBAC = Rule(
    About(
        "rbac",
        "Roles list what they allow, and cannot grant more than they have",
        "wildcards, and verbs such as escalate, allow more than intended, such as reading Secrets",
        "list the resources and verbs that are needed",
    ),
    _rbac,
)

_LEVELS = ("privileged", "baseline", "restricted")
_POD_SECURITY = "pod-security.kubernetes.io"


def _namespaces(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) == "Namespace":
        labels = at(resource.props, "metadata", "labels") or {}
        if labels.get(f"{_POD_SECURITY}/enforce") not in _LEVELS:
            yield f"its label {_POD_SECURITY}/enforce is missing or has no valid level"
        if labels.get(f"{_POD_SECURITY}/audit") not in _LEVELS[1:]:
            yield f"its label {_POD_SECURITY}/audit is neither baseline nor restricted"


NAMESPACES = Rule(
    About(
        "namespaces",
        "A namespace sets which pods it admits, and logs those that baseline would refuse",
        "otherwise defaults of the cluster decide which pods may start",
        f"set the labels {_POD_SECURITY}/enforce and {_POD_SECURITY}/audit",
    ),
    _namespaces,
)
