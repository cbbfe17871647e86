"""Who reaches whom, by what network policies mean.

NetworkPolicies are judged as Kubernetes describes them ("Network Policies"; API reference of
networking.k8s.io/v1), and, where Cilium is the network plugin, as that one takes them, beside
CiliumNetworkPolicies (cilium.io/v2; Cilium's documentation, "Network Policy").

A connection is judged by where it begins and where it ends; answers come back by themselves. What
an object says that this judge does not know, or that Cilium itself refuses, is an error: a judge
that passes something over would find too much allowed or too little.
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
"""The label by which Cilium knows an endpoint's namespace."""


class Unjudged(Exception):  # noqa: N818  # no error of a judgement: there is none
    """An object says what Cilium or Kubernetes refuses, or what this judge does not know."""


# --- Ends ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class End:
    """Where a connection begins or ends: a pod, a Kubernetes node, or something outside.

    Each is its own: two pods with the same labels are two ends.
    """

    name: str
    kind: Literal["pod", "machine", "outside"] = "pod"
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Beside `kubernetes.io/metadata.name`, which every namespace has."""
    address: str = "10.244.0.1"
    ports: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Protocol and number of its named ports."""
    machine: str = "node-0"
    """The machine that a pod is on; of a machine its own name."""
    api: bool = False
    """Kubernetes' API is served here."""
    dns_names: tuple[str, ...] = ()
    """Names that DNS gives the address of something outside for."""


def machine(name: str, address: str = "10.0.0.1", *, api: bool = False) -> End:
    """A Kubernetes node, and every pod in its own network."""
    return End(name, "machine", address=address, machine=name, api=api)


def outside(address: str, *dns_names: str, api: bool = False) -> End:
    """Somebody who is no part of the cluster."""
    return End(address, "outside", "", address=address, machine="", dns_names=dns_names, api=api)


@dataclass(frozen=True)
class Ask:
    """One connection that somebody would open; ICMP has no port, which is 0."""

    source: End
    target: End
    port: int
    protocol: str = "TCP"


# --- Rules, whatever kind of object they are from ------------------------------------------------

Peer = Callable[[End, End], bool]
"""Whether the second end is meant by a rule about the first."""


@dataclass(frozen=True)
class Rule:
    """What one rule is about. It meets nobody without peers, and without ports every port."""

    peers: tuple[Peer, ...]
    ports: tuple[Callable[[Ask], bool], ...] = ()
    denies: bool = False
    look_ups: tuple[str, ...] | None = None
    """Patterns of the names that DNS may be asked for here; None is every one, and Cilium does not
    read what is asked."""

    def is_about(self, subject: End, other: End) -> bool:
        return any(peer(subject, other) for peer in self.peers)

    def has_port(self, ask: Ask) -> bool:
        return not self.ports or any(port(ask) for port in self.ports)


@dataclass(frozen=True)
class Policy:
    """One policy; for the pods that it selects, what it does not allow is denied from then on."""

    selects: Callable[[End], bool]
    closes: frozenset[Direction]
    """Directions in which what no policy allows is denied."""
    rules: Mapping[Direction, tuple[Rule, ...]]


class Judge:
    """Judges connections by all policies of a cluster together."""

    def __init__(self, objects: Iterable[Spec], *, cilium: bool) -> None:
        """`cilium` tells the network plugin. No other one knows CiliumNetworkPolicies.

        Raises Unjudged.
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

    def allows(self, ask: Ask) -> bool:
        """Whether a connection leaves where it begins, and is let in where it ends."""
        if self._is_of_one_machine(ask):
            return True
        return self._lets("egress", ask) and self._lets("ingress", ask)

    def allows_look_up(self, ask: Ask, name: str) -> bool:
        """Whether DNS, which `ask` is for, may be asked for a name."""
        patterns = [rule.look_ups for rule in self._met("egress", ask)]
        free = not patterns or None in patterns
        return self.allows(ask) and (
            free or any(_is_name(p, name) for ps in patterns if ps for p in ps)
        )

    def _is_of_one_machine(self, ask: Ask) -> bool:
        """kubelet must reach its pods, so that no policy keeps a machine from its own.

        Kubernetes says the same of the way back; Cilium judges that one.
        """
        if ask.source.machine != ask.target.machine:
            return False
        return ask.source.kind == "machine" or (ask.target.kind == "machine" and not self._cilium)

    def _lets(self, direction: Direction, ask: Ask) -> bool:
        subject = _ends(direction, ask)[0]
        met = self._met(direction, ask)
        if any(rule.denies for rule in met):
            return False
        return bool(met) or not any(
            direction in policy.closes for policy in self._concerning(subject)
        )

    def _met(self, direction: Direction, ask: Ask) -> list[Rule]:
        rules = self._about(direction, *_ends(direction, ask))
        return [rule for rule in rules if rule.has_port(ask)]

    def _about(self, direction: Direction, subject: End, other: End) -> list[Rule]:
        """Rules of the one end that mean the other, whatever the port."""
        known = self._pairs.get((direction, subject, other))
        if known is None:
            meant = _known(other, self._learned(subject)) if direction == "egress" else other
            known = self._pairs[direction, subject, other] = [
                rule
                for policy in self._concerning(subject)
                for rule in policy.rules[direction]
                if rule.is_about(subject, meant)
            ]
        return known

    def _concerning(self, subject: End) -> list[Policy]:
        known = self._concerned.get(subject)
        if known is None:
            # Policies are of pods with a network of their own.
            is_pod = subject.kind == "pod"
            known = self._concerned[subject] = [
                policy for policy in self._policies if is_pod and policy.selects(subject)
            ]
        return known

    def _learned(self, subject: End) -> tuple[str, ...]:
        """Patterns of names whose addresses Cilium learns, by reading what the pod asks DNS."""
        rules = (rule for policy in self._concerning(subject) for rule in policy.rules["egress"])
        return tuple(pattern for rule in rules for pattern in rule.look_ups or ())


def _ends(direction: Direction, ask: Ask) -> tuple[End, End]:
    """Whose policies count, and whom these are about."""
    return (ask.source, ask.target) if direction == "egress" else (ask.target, ask.source)


def _known(end: End, patterns: tuple[str, ...]) -> End:
    """The end with those of its names that Cilium has read in an answer of DNS."""
    names = tuple(n for n in end.dns_names if any(_is_name(p, n) for p in patterns))
    return replace(end, dns_names=names)


def _only(what: str, given: Spec, *known: str) -> None:
    """Raises Unjudged where something is given that is not known."""
    if unknown := sorted(set(given) - set(known)):
        raise Unjudged(f"{what}: {', '.join(unknown)}")


# --- Labels --------------------------------------------------------------------------------------


Labels = Mapping[str, str]


def _selector(spec: Spec) -> Callable[[Labels], bool]:
    """Selects everybody where nothing is said; else who has all that is said."""
    _only("selector", spec, "matchLabels", "matchExpressions")
    wanted = (spec.get("matchLabels") or {}).items()
    held = [_expression(one) for one in spec.get("matchExpressions") or ()]
    return lambda labels: wanted <= labels.items() and all(holds(labels) for holds in held)


def _expression(spec: Spec) -> Callable[[Labels], bool]:
    _only("matchExpressions", spec, "key", "operator", "values")
    key, values = spec["key"], spec.get("values", ())
    operators: dict[str, Callable[[Labels], bool]] = {
        "In": lambda labels: labels.get(key) in values,
        # Who has no such label is none of them.
        "NotIn": lambda labels: labels.get(key) not in values,
        "Exists": lambda labels: key in labels,
        "DoesNotExist": lambda labels: key not in labels,
    }
    if spec["operator"] not in operators:
        raise Unjudged(f"operator: {spec['operator']}")
    return operators[spec["operator"]]


# --- Addresses and names -------------------------------------------------------------------------


def _inside(address: str, cidr: str, but: Iterable[str] = ()) -> bool:
    network = ip_network(cidr)
    for part in map(ip_network, but):
        if part.version != network.version or not part.subnet_of(network):  # type: ignore[arg-type]
            raise Unjudged(f"except: {part} is no part of {cidr}")
    one = ip_address(address)
    return one in network and not any(one in ip_network(part) for part in but)


def _is_name(pattern: str, name: str) -> bool:
    """Whether a name is of a pattern: a star is what is between two dots, or alone everything."""
    if pattern == "*":
        return True
    parts = (re.escape(part) for part in pattern.lower().split("*"))
    return re.fullmatch("[-a-z0-9_]*".join(parts), name.lower()) is not None


# --- NetworkPolicies -----------------------------------------------------------------------------


def _network_policy(one: Spec, *, cilium: bool) -> Policy:
    namespace, spec = one["metadata"]["namespace"], one["spec"]
    _only("spec", spec, "podSelector", "policyTypes", "ingress", "egress")
    # Where nobody says: ingress always, egress where there are rules for it.
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
        tuple(_kubernetes_peer(peer, namespace, cilium) for peer in named) or (_anybody,),
        tuple(_kubernetes_port(port) for port in rule.get("ports") or ()),
    )


def _kubernetes_peer(peer: Spec, namespace: str, cilium: bool) -> Peer:
    _only("peer", peer, "ipBlock", "podSelector", "namespaceSelector")
    if "ipBlock" in peer:
        _only("peer with ipBlock", peer, "ipBlock")
        _only("ipBlock", peer["ipBlock"], "cidr", "except")
        cidr, but = peer["ipBlock"]["cidr"], peer["ipBlock"].get("except") or ()
        return _cilium_block(cidr, but) if cilium else _block(cidr, but)
    own = peer.get("namespaceSelector") is None
    selects = _selector(peer.get("podSelector") or {})
    selects_namespace = _selector(peer.get("namespaceSelector") or {})

    def is_meant(_subject: End, other: End) -> bool:
        labels = {"kubernetes.io/metadata.name": other.namespace, **other.namespace_labels}
        there = other.namespace == namespace if own else selects_namespace(labels)
        return other.kind == "pod" and there and selects(other.labels)

    return is_meant


def _kubernetes_port(port: Spec) -> Callable[[Ask], bool]:
    _only("port", port, "protocol", "port", "endPort")
    protocol = port.get("protocol", "TCP")
    first, last = port.get("port"), port.get("endPort")
    if last is not None and (not isinstance(first, int) or last < first):
        raise Unjudged(f"endPort: {last} after {first!r}")
    return lambda ask: (
        ask.protocol == protocol and (first is None or _is_port(ask, first, last or first))
    )


def _is_port(ask: Ask, first: int | str, last: int | str) -> bool:
    """A port by number or range, or by the name that it has where the connection ends."""
    if isinstance(first, str):
        return ask.target.ports.get(first) == (ask.protocol, ask.port)
    return first <= ask.port <= int(last)


def _anybody(_subject: End, _other: End) -> bool:
    return True


def _block(cidr: str, but: Iterable[str]) -> Peer:
    return lambda _subject, other: _inside(other.address, cidr, but)


# --- CiliumNetworkPolicies -----------------------------------------------------------------------

_SECTIONS = ("ingress", "ingressDeny", "egress", "egressDeny")
_MOST_PORTS = 40


def _cilium_block(cidr: str, but: Iterable[str]) -> Peer:
    """Cilium knows pods and machines by what they are, and only the others by their addresses."""
    return lambda _subject, other: other.kind == "outside" and _inside(other.address, cidr, but)


def _cilium_policy(one: Spec) -> Policy:
    namespace, spec = one["metadata"]["namespace"], one["spec"]
    _only("spec", spec, "endpointSelector", "enableDefaultDeny", "description", *_SECTIONS)
    if "endpointSelector" not in spec:
        raise Unjudged("endpointSelector: is missing")
    selector = _without_sources(spec["endpointSelector"])
    if _names_namespace(selector):
        raise Unjudged("endpointSelector: names a namespace; a policy is of its own")
    said = spec.get("enableDefaultDeny") or {}
    _only("enableDefaultDeny", said, *_DIRECTIONS)
    selects = _selector(selector)
    return Policy(
        lambda end: end.namespace == namespace and selects(end.labels),
        frozenset(
            direction
            for direction in _DIRECTIONS
            if said.get(direction, bool(spec.get(direction) or spec.get(f"{direction}Deny")))
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
        raise Unjudged(f"{' and '.join(named)}: Cilium takes one of them in a rule")
    to_ports = rule.get("toPorts") or ()
    if not named:
        # A rule that says nothing meets nobody; one that names ports alone meets everybody.
        peers: tuple[Peer, ...] = (_anybody,) if to_ports else ()
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
        raise Unjudged(f"matchName: {peer['matchName']}: is a pattern")
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
        "all": _anybody,
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


def _cilium_ports(port_rule: Spec) -> Iterator[Callable[[Ask], bool]]:
    _only("toPorts", port_rule, "ports", "rules")
    ports = port_rule.get("ports") or ()
    if not 0 < len(ports) <= _MOST_PORTS:
        raise Unjudged(f"toPorts: {len(ports)} ports; Cilium takes 1 to {_MOST_PORTS}")
    for port in ports:
        _only("port", port, "port", "endPort", "protocol")
        if not isinstance(port.get("port"), str):
            raise Unjudged(f"port: {port.get('port')!r}: is no text")
        yield _cilium_port(port["port"], port.get("endPort"), port.get("protocol", "ANY"))


def _cilium_port(text: str, last: int | None, protocol: str) -> Callable[[Ask], bool]:
    if protocol not in ("ANY", *PROTOCOLS):
        raise Unjudged(f"protocol: {protocol}")
    first = int(text) if text.isdigit() else text
    protocols = PROTOCOLS if protocol == "ANY" else (protocol,)
    return lambda ask: (
        ask.protocol in protocols and (first == 0 or _is_port(ask, first, last or first))
    )


def _look_ups(port_rule: Spec, *, allowed: bool) -> Iterator[str]:
    """Patterns of a rule for DNS; of an empty one every name."""
    if "rules" not in port_rule:
        return
    rules = port_rule["rules"]
    _only("rules", rules, "dns")
    if not allowed:
        raise Unjudged("rules: are of egress that is allowed")
    if any(port["port"] != "53" or "endPort" in port for port in port_rule["ports"]):
        raise Unjudged("dns: is of port 53")
    for name in rules["dns"]:
        _only("dns", name, "matchName", "matchPattern")
        yield name.get("matchPattern") or name["matchName"]


def _without_sources(selector: Spec) -> Spec:
    """A selector with its labels' sources left out: ours are all Kubernetes'."""
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
