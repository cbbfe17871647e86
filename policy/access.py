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
        yield "it answers at externalIPs, whoever asks"
    if spec.get("type") == "LoadBalancer":
        ranges = tuple(spec.get("loadBalancerSourceRanges") or ())
        if not ranges:
            yield "it is a load balancer for the whole world"
        for one in _whole_worlds(ranges):
            yield f"its source ranges {', '.join(map(str, ranges))} are the whole world, {one}"


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
        "A load balancer answers some addresses only",
        "a login node that the whole world reaches is tried by the whole world, at once",
        "set loadBalancerSourceRanges (of login nodes: login.source_ranges in the stack's config)",
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
                yield workload, f"no network policy of its namespace judges its pods' {direction}"

    return over(resources, judge)


def _directions(spec: Mapping[str, Any]) -> tuple[str, ...]:
    if told := tuple(spec.get("policyTypes") or ()):
        return told
    # Cilium's policies are allow lists: even a deny rule causes everything else to be denied.
    cilium = "endpointSelector" in spec
    inwards = not cilium or spec.get("ingress") or spec.get("ingressDeny")
    outwards = spec.get("egress") or spec.get("egressDeny")
    return (*(["Ingress"] if inwards else []), *(["Egress"] if outwards else []))


NETWORK_POLICIES = StackRule(
    About(
        "network-policies",
        "A network policy says of every workload whom it talks to, in both directions",
        "pods that none selects reach everything and are reached by everything",
        "label the pods as the others are, or add a policy for them",
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
            yield f"it gives the role {role}"


def _too_much(rule: Mapping[str, Any]) -> Iterator[str]:
    for key in ("apiGroups", "nonResourceURLs", "resources", "verbs"):
        if any("*" in one for one in rule.get(key) or ()):
            yield f"a rule has a wildcard among its {key}"
    for verb in rule.get("verbs") or ():
        if verb in _TAKES_OVER:
            yield f"a rule has the verb {verb}"


RBAC = Rule(
    About(
        "rbac",
        "Roles name what they allow, and none hands on more than it has",
        "a wildcard allows what nobody thought of, Secrets included",
        "write down the resources and verbs that are needed",
    ),
    _rbac,
)

_LEVELS = ("privileged", "baseline", "restricted")
_POD_SECURITY = "pod-security.kubernetes.io"


def _namespaces(resource: Resource, _: Allowed) -> Iterator[str]:
    if kind(resource) == "Namespace":
        labels = at(resource.props, "metadata", "labels") or {}
        if labels.get(f"{_POD_SECURITY}/enforce") not in _LEVELS:
            yield f"it has no label {_POD_SECURITY}/enforce with a level"
        if labels.get(f"{_POD_SECURITY}/audit") not in _LEVELS[1:]:
            yield f"its label {_POD_SECURITY}/audit is neither baseline nor restricted"


NAMESPACES = Rule(
    About(
        "namespaces",
        "A namespace says what pods it admits, and has those logged that baseline would not",
        "else it depends on the cluster whether our pods start, and what others may start there",
        f"set the labels {_POD_SECURITY}/enforce and {_POD_SECURITY}/audit",
    ),
    _namespaces,
)
