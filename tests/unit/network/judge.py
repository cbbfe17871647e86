"""Decide which connections network policies allow.

This module reads NetworkPolicies as Kubernetes describes them (sources: Kubernetes' documentation,
"Network Policies"; API reference of networking.k8s.io/v1). If Cilium is the network plugin, this
module reads NetworkPolicies as Cilium does, and also reads CiliumNetworkPolicies, API version
cilium.io/v2 (source: Cilium's documentation, "Network Policy").

A connection has a source and a target. Replies are always allowed. If this module does not know a
field of a policy, or Cilium itself refuses the field, the module raises an error. If it ignored the
field, it would allow too much or too little.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any, Literal

Spec = Mapping[str, Any]
Direction = Literal["egress", "ingress"]
PROTOCOLS = ("TCP", "UDP", "SCTP")
_DIRECTIONS: tuple[Direction, ...] = ("egress", "ingress")
_NAMESPACE = "io.kubernetes.pod.namespace"
"""Cilium's label for the namespace of an endpoint."""


class Unjudged(Exception):  # noqa: N818  # an undecided case, not a failure
    """A field or value that Cilium, Kubernetes or this module does not accept."""


# --- Sources and targets -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class End:
    """Source or target of a connection: a pod, a Kubernetes node, or a host outside the cluster.

    Python compares these objects by identity. So two pods with the same labels are two different
    ends.
    """

    name: str
    kind: Literal["pod", "machine", "outside"] = "pod"
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the namespace, without `kubernetes.io/metadata.name`, which all namespaces have."""
    address: str = "10.244.0.1"
    ports: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Protocol and number of each named port."""
    machine: str = "node-0"
    """Name of the machine that runs a pod. For a machine, this is its own name."""
    api: bool = False
    """Whether this end is an API server of Kubernetes."""
    dns_names: tuple[str, ...] = ()
    """DNS names of an end outside the cluster."""


def machine(name: str, address: str = "10.0.0.1", *, api: bool = False) -> End:
    """Return a Kubernetes node, which also represents every pod in its host network."""
    return End(name, "machine", address=address, machine=name, api=api)


def outside(address: str, *dns_names: str, api: bool = False) -> End:
    """Return an end outside the cluster."""
    return End(address, "outside", "", address=address, machine="", dns_names=dns_names, api=api)


@dataclass(frozen=True)
class Connection:
    """One attempted connection. For ICMP, which has no ports, the port is 0."""

    source: End
    target: End
    port: int
    protocol: str = "TCP"


# --- Rules of both kinds of policies --------------------------------------------------------------

Peer = Callable[[End, End], bool]
"""Returns whether a rule that applies to the first end matches the second end."""


@dataclass(frozen=True)
class Rule:
    """One rule of a policy. A rule without peers matches no end. A rule without ports matches every
    port."""

    peers: tuple[Peer, ...]
    ports: tuple[Callable[[Connection], bool], ...] = ()
    denies: bool = False
    look_ups: tuple[str, ...] | None = None
    """Patterns of the names that DNS queries may contain. None means that every name is allowed.
    Cilium then does not read the queries."""

    def is_about(self, subject: End, other: End) -> bool:
        return any(peer(subject, other) for peer in self.peers)

    def has_port(self, connection: Connection) -> bool:
        return not self.ports or any(port(connection) for port in self.ports)


@dataclass(frozen=True)
class Policy:
    """One policy. A pod that a policy selects can open or accept only connections that some policy
    allows."""

    selects: Callable[[End], bool]
    closes: frozenset[Direction]
    """Directions in which the policy denies by default."""
    rules: Mapping[Direction, tuple[Rule, ...]]


class Judge:
    """Decide whether all policies of a cluster together allow a connection."""

    def __init__(self, objects: Iterable[Spec], *, cilium: bool) -> None:
        """Read the policies in `objects`. `cilium` is true if Cilium is the network plugin: only
        Cilium reads CiliumNetworkPolicies.

        Raises Unjudged if a policy has an unknown or invalid field.
        """
        self._cilium = cilium
        self._policies = [self._read(one["kind"], one) for one in objects]
        self._concerned: dict[End, list[Policy]] = {}
        self._pairs: dict[tuple[Direction, End, End], list[Rule]] = {}

    def _read(self, kind: str, one: Spec) -> Policy:
        if kind == "NetworkPolicy":
            return _network_policy(one, cilium=self._cilium)
        if kind == "CiliumNetworkPolicy" and self._cilium:
            return _cilium_policy(one)
        raise Unjudged(f"kind: {kind}")

    def allows(self, connection: Connection) -> bool:
        """Return whether the source's policies allow the connection as egress, and the target's
        policies allow it as ingress."""
        if self._is_of_one_machine(connection):
            return True
        return self._allows_direction("egress", connection) and self._allows_direction(
            "ingress", connection
        )

    def allows_look_up(self, connection: Connection, name: str) -> bool:
        """Return whether a DNS query over this connection may contain a name."""
        patterns = [rule.look_ups for rule in self._matching("egress", connection)]
        free = not patterns or None in patterns
        return self.allows(connection) and (
            free or any(_is_name(p, name) for ps in patterns if ps for p in ps)
        )

    def _is_of_one_machine(self, connection: Connection) -> bool:
        """Return whether policies ignore a connection, because it stays on one machine.

        A machine always reaches its pods, because the kubelet probes them. Kubernetes also exempts
        connections from a pod to its machine; Cilium does not.
        """
        if connection.source.machine != connection.target.machine:
            return False
        return connection.source.kind == "machine" or (
            connection.target.kind == "machine" and not self._cilium
        )

    def _allows_direction(self, direction: Direction, connection: Connection) -> bool:
        subject = _ends(direction, connection)[0]
        matching = self._matching(direction, connection)
        if any(rule.denies for rule in matching):
            return False
        return bool(matching) or not any(
            direction in policy.closes for policy in self._policies_of(subject)
        )

    def _matching(self, direction: Direction, connection: Connection) -> list[Rule]:
        rules = self._rules_for(direction, *_ends(direction, connection))
        return [rule for rule in rules if rule.has_port(connection)]

    def _rules_for(self, direction: Direction, subject: End, other: End) -> list[Rule]:
        """Return the rules of the subject's policies that match the other end, at any port."""
        known = self._pairs.get((direction, subject, other))
        if known is None:
            resolved = (
                _with_learned_names(other, self._learned(subject))
                if direction == "egress"
                else other
            )
            known = self._pairs[direction, subject, other] = [
                rule
                for policy in self._policies_of(subject)
                for rule in policy.rules[direction]
                if rule.is_about(subject, resolved)
            ]
        return known

    def _policies_of(self, subject: End) -> list[Policy]:
        known = self._concerned.get(subject)
        if known is None:
            # Policies apply only to pods with their own network.
            is_pod = subject.kind == "pod"
            known = self._concerned[subject] = [
                policy for policy in self._policies if is_pod and policy.selects(subject)
            ]
        return known

    def _learned(self, subject: End) -> tuple[str, ...]:
        """Return patterns of the names whose addresses Cilium learns from the pod's DNS queries."""
        rules = (rule for policy in self._policies_of(subject) for rule in policy.rules["egress"])
        return tuple(pattern for rule in rules for pattern in rule.look_ups or ())


def _ends(direction: Direction, connection: Connection) -> tuple[End, End]:
    """Return two ends of a connection: first the end whose policies apply, then the end that the
    rules of these policies must match."""
    return (
        (connection.source, connection.target)
        if direction == "egress"
        else (connection.target, connection.source)
    )


def _with_learned_names(end: End, patterns: tuple[str, ...]) -> End:
    """Return the end with only the names that Cilium has read in DNS replies."""
    names = tuple(n for n in end.dns_names if any(_is_name(p, n) for p in patterns))
    return replace(end, dns_names=names)


def _only(what: str, given: Spec, *known: str) -> None:
    """Raise Unjudged if an object has an unknown key."""
    if unknown := sorted(set(given) - set(known)):
        raise Unjudged(f"{what}: {', '.join(unknown)}")


# --- Labels --------------------------------------------------------------------------------------


Labels = Mapping[str, str]


def _selector(spec: Spec) -> Callable[[Labels], bool]:
    """Return a selector. It requires all its conditions, so an empty selector selects every end."""
    _only("selector", spec, "matchLabels", "matchExpressions")
    wanted = (spec.get("matchLabels") or {}).items()
    held = [_expression(one) for one in spec.get("matchExpressions") or ()]
    return lambda labels: wanted <= labels.items() and all(holds(labels) for holds in held)


def _expression(spec: Spec) -> Callable[[Labels], bool]:
    _only("matchExpressions", spec, "key", "operator", "values")
    key, values = spec["key"], spec.get("values", ())
    operators: dict[str, Callable[[Labels], bool]] = {
        "In": lambda labels: labels.get(key) in values,
        # NotIn also matches an end that does not have the label.
        "NotIn": lambda labels: labels.get(key) not in values,
        "Exists": lambda labels: key in labels,
        "DoesNotExist": lambda labels: key not in labels,
    }
    if spec["operator"] not in operators:
        raise Unjudged(f"operator: {spec['operator']}")
    return operators[spec["operator"]]


# --- Addresses and names -------------------------------------------------------------------------


def _inside(address: str, cidr: str, exceptions: Iterable[str] = ()) -> bool:
    network = ip_network(cidr)
    for part in map(ip_network, exceptions):
        if part.version != network.version or not part.subnet_of(network):  # type: ignore[arg-type]
            raise Unjudged(f"except: {part} is not inside {cidr}")
    one = ip_address(address)
    return one in network and not any(one in ip_network(part) for part in exceptions)


def _is_name(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern. A star matches no dots; `*` alone matches all."""
    if pattern == "*":
        return True
    parts = (re.escape(part) for part in pattern.lower().split("*"))
    return re.fullmatch("[-a-z0-9_]*".join(parts), name.lower()) is not None


# --- NetworkPolicies -----------------------------------------------------------------------------


def _network_policy(one: Spec, *, cilium: bool) -> Policy:
    namespace, spec = one["metadata"]["namespace"], one["spec"]
    _only("spec", spec, "podSelector", "policyTypes", "ingress", "egress")
    # By default, a policy restricts ingress, and also egress if it has egress rules.
    types = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    rules = {
        direction: tuple(
            _kubernetes_rule(rule, "from" if direction == "ingress" else "to", namespace, cilium)
            for rule in spec.get(direction) or ()
        )
        for direction in _DIRECTIONS
        if direction.title() in types
    }
    selects = _selector(spec.get("podSelector") or {})
    return Policy(
        lambda end: end.namespace == namespace and selects(end.labels),
        frozenset(rules),
        {direction: rules.get(direction, ()) for direction in _DIRECTIONS},
    )


def _kubernetes_rule(rule: Spec, peers: str, namespace: str, cilium: bool) -> Rule:
    _only("rule", rule, peers, "ports")
    named = rule.get(peers) or ()
    return Rule(
        tuple(_kubernetes_peer(peer, namespace, cilium) for peer in named) or (_any_end,),
        tuple(_kubernetes_port(port) for port in rule.get("ports") or ()),
    )


def _kubernetes_peer(peer: Spec, namespace: str, cilium: bool) -> Peer:
    _only("peer", peer, "ipBlock", "podSelector", "namespaceSelector")
    if "ipBlock" in peer:
        _only("peer with ipBlock", peer, "ipBlock")
        _only("ipBlock", peer["ipBlock"], "cidr", "except")
        cidr, exceptions = peer["ipBlock"]["cidr"], peer["ipBlock"].get("except") or ()
        return _cilium_block(cidr, exceptions) if cilium else _block(cidr, exceptions)
    own = peer.get("namespaceSelector") is None
    selects = _selector(peer.get("podSelector") or {})
    selects_namespace = _selector(peer.get("namespaceSelector") or {})

    def is_meant(_subject: End, other: End) -> bool:
        labels = {"kubernetes.io/metadata.name": other.namespace, **other.namespace_labels}
        there = other.namespace == namespace if own else selects_namespace(labels)
        return other.kind == "pod" and there and selects(other.labels)

    return is_meant


def _kubernetes_port(port: Spec) -> Callable[[Connection], bool]:
    _only("port", port, "protocol", "port", "endPort")
    protocol = port.get("protocol", "TCP")
    first, last = port.get("port"), port.get("endPort")
    if last is not None and (not isinstance(first, int) or last < first):
        raise Unjudged(f"endPort: {last} after {first!r}")
    return lambda connection: (
        connection.protocol == protocol
        and (first is None or _is_port(connection, first, last or first))
    )


def _is_port(connection: Connection, first: int | str, last: int | str) -> bool:
    """Match a port by number, by range, or by its name in the target."""
    if isinstance(first, str):
        return connection.target.ports.get(first) == (connection.protocol, connection.port)
    return first <= connection.port <= int(last)


def _any_end(_subject: End, _other: End) -> bool:
    return True


def _block(cidr: str, exceptions: Iterable[str]) -> Peer:
    return lambda _subject, other: _inside(other.address, cidr, exceptions)


# --- CiliumNetworkPolicies -----------------------------------------------------------------------

_SECTIONS = ("ingress", "ingressDeny", "egress", "egressDeny")
_MOST_PORTS = 40


def _cilium_block(cidr: str, exceptions: Iterable[str]) -> Peer:
    """Match only ends outside the cluster: Cilium does not match pods and machines by address, but
    by identity."""
    return lambda _subject, other: (
        other.kind == "outside" and _inside(other.address, cidr, exceptions)
    )


def _cilium_policy(one: Spec) -> Policy:
    namespace, spec = one["metadata"]["namespace"], one["spec"]
    _only("spec", spec, "endpointSelector", "enableDefaultDeny", "description", *_SECTIONS)
    if "endpointSelector" not in spec:
        raise Unjudged("endpointSelector: is missing")
    selector = _without_sources(spec["endpointSelector"])
    if _names_namespace(selector):
        raise Unjudged("endpointSelector: remove the namespace; a policy applies only to its own")
    default_deny = spec.get("enableDefaultDeny") or {}
    _only("enableDefaultDeny", default_deny, *_DIRECTIONS)
    selects = _selector(selector)
    return Policy(
        lambda end: end.namespace == namespace and selects(end.labels),
        frozenset(
            direction
            for direction in _DIRECTIONS
            if default_deny.get(
                direction, bool(spec.get(direction) or spec.get(f"{direction}Deny"))
            )
        ),
        {
            direction: tuple(
                _cilium_rule(rule, direction, namespace, denies=section.endswith("Deny"))
                for section in (direction, f"{direction}Deny")
                for rule in spec.get(section) or ()
            )
            for direction in _DIRECTIONS
        },
    )


def _cilium_rule(rule: Spec, direction: Direction, namespace: str, *, denies: bool) -> Rule:
    way = "to" if direction == "egress" else "from"
    kinds = [f"{way}{kind}" for kind in ("Endpoints", "Entities", "CIDR", "CIDRSet")]
    if direction == "egress" and not denies:
        kinds.append("toFQDNs")
    _only(direction, rule, *kinds, "toPorts")
    named = [kind for kind in kinds if kind in rule]
    if len(named) > 1:
        raise Unjudged(f"{' and '.join(named)}: Cilium accepts only one of these in a rule")
    to_ports = rule.get("toPorts") or ()
    if not named:
        # An empty rule matches no end; a rule with only ports matches every end.
        peers: tuple[Peer, ...] = (_any_end,) if to_ports else ()
    else:
        (kind,) = named
        peers = tuple(_cilium_peer(kind.removeprefix(way), peer, namespace) for peer in rule[kind])
    look_ups = [
        pattern
        for port in to_ports
        for pattern in _look_ups(port, allowed=direction == "egress" and not denies)
    ]
    reads = any("rules" in port for port in to_ports)
    return Rule(
        peers,
        tuple(number for port in to_ports for number in _cilium_ports(port)),
        denies,
        tuple(look_ups) if reads else None,
    )


def _cilium_peer(kind: str, peer: Any, namespace: str) -> Peer:
    match kind:
        case "Endpoints":
            return _endpoints(peer, namespace)
        case "Entities":
            return _entity(peer)
        case "CIDR":
            return _cilium_block(peer if "/" in peer else f"{peer}/32", ())
        case "CIDRSet":
            _only("CIDRSet", peer, "cidr", "except")
            return _cilium_block(peer["cidr"], peer.get("except") or ())
    _only("toFQDNs", peer, "matchName", "matchPattern")
    pattern = peer.get("matchPattern") or peer["matchName"]
    if "*" in peer.get("matchName", ""):
        raise Unjudged(f"matchName: {peer['matchName']}: is a pattern; use matchPattern")
    return lambda _subject, other: (
        other.kind == "outside" and any(_is_name(pattern, name) for name in other.dns_names)
    )


def _endpoints(selector: Spec, namespace: str) -> Peer:
    selector = _without_sources(selector)
    anywhere, selects = _names_namespace(selector), _selector(selector)

    def is_meant(_subject: End, other: End) -> bool:
        if other.kind != "pod" or not (anywhere or other.namespace == namespace):
            return False
        return selects({**other.labels, _NAMESPACE: other.namespace})

    return is_meant


def _entity(entity: str) -> Peer:
    entities: dict[str, Peer] = {
        "all": _any_end,
        "cluster": lambda _subject, other: other.kind != "outside",
        "world": lambda _subject, other: other.kind == "outside",
        "host": lambda subject, other: other.kind == "machine" and other.machine == subject.machine,
        "remote-node": lambda subject, other: (
            other.kind == "machine" and other.machine != subject.machine
        ),
        "kube-apiserver": lambda _subject, other: other.api,
    }
    if entity not in entities:
        raise Unjudged(f"entity: {entity}")
    return entities[entity]


def _cilium_ports(port_rule: Spec) -> Iterator[Callable[[Connection], bool]]:
    _only("toPorts", port_rule, "ports", "rules")
    ports = port_rule.get("ports") or ()
    if not 0 < len(ports) <= _MOST_PORTS:
        raise Unjudged(f"toPorts: {len(ports)} ports; Cilium accepts 1 to {_MOST_PORTS}")
    for port in ports:
        _only("port", port, "port", "endPort", "protocol")
        if not isinstance(port.get("port"), str):
            raise Unjudged(f"port: {port.get('port')!r}: expected text")
        yield _cilium_port(port["port"], port.get("endPort"), port.get("protocol", "ANY"))


def _cilium_port(text: str, last: int | None, protocol: str) -> Callable[[Connection], bool]:
    if protocol not in ("ANY", *PROTOCOLS):
        raise Unjudged(f"protocol: {protocol}")
    first = int(text) if text.isdigit() else text
    protocols = PROTOCOLS if protocol == "ANY" else (protocol,)
    return lambda connection: (
        connection.protocol in protocols
        and (first == 0 or _is_port(connection, first, last or first))
    )


def _look_ups(port_rule: Spec, *, allowed: bool) -> Iterator[str]:
    """Yield the patterns of DNS names that a rule allows."""
    if "rules" not in port_rule:
        return
    rules = port_rule["rules"]
    _only("rules", rules, "dns")
    if not allowed:
        raise Unjudged("rules: expected only in egress rules that allow")
    if any(port["port"] != "53" or "endPort" in port for port in port_rule["ports"]):
        raise Unjudged("dns: expected only with port 53")
    for name in rules["dns"]:
        _only("dns", name, "matchName", "matchPattern")
        yield name.get("matchPattern") or name["matchName"]


def _without_sources(selector: Spec) -> Spec:
    """Remove prefixes such as `k8s:`, which name the source of a label. In these tests, all labels
    come from Kubernetes."""
    _only("selector", selector, "matchLabels", "matchExpressions")

    def plain(key: str) -> str:
        source, colon, name = key.rpartition(":")
        if colon and source not in ("k8s", "any"):
            raise Unjudged(f"label: {key}")
        return name

    return {
        "matchLabels": {
            plain(key): value for key, value in (selector.get("matchLabels") or {}).items()
        },
        "matchExpressions": [
            {**expression, "key": plain(expression["key"])}
            for expression in selector.get("matchExpressions") or ()
        ],
    }


def _names_namespace(selector: Spec) -> bool:
    keys = {*selector["matchLabels"], *(one["key"] for one in selector["matchExpressions"])}
    return _NAMESPACE in keys
