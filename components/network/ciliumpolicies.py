"""Render the rules of the module `flows` as CiliumNetworkPolicies (API version cilium.io/v2).

Unlike NetworkPolicies, CiliumNetworkPolicies can select external names, Kubernetes' API, nodes and
DNS pods. If a CiliumNetworkPolicy denies a connection, no other policy can allow it. Source:
Cilium's documentation, "Network Policy".
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_network
from typing import Any

from components import conventions as c
from components import pods
from components.network import flows
from components.network.flows import Flow, Reach, Rules

_NAMESPACE = "k8s:io.kubernetes.pod.namespace"
_DNS = {
    "matchLabels": {_NAMESPACE: "kube-system"},
    "matchExpressions": [
        {"key": "k8s:k8s-app", "operator": "In", "values": ["kube-dns", "node-local-dns"]}
    ],
}
"""Selector of the cluster's DNS pods, with the labels that kubeadm and the clouds set."""
_ALL_CLIENTS = ["all"]


def policies(rules: tuple[Rules, ...]) -> dict[str, pods.Spec]:
    """Return the specs of CiliumNetworkPolicies by name.

    `default` selects all pods of the project. It allows nothing, and denies the metadata services
    of clouds, so that no other policy can allow them again.
    """
    default = {
        "endpointSelector": pods.selector(),
        # Cilium denies by default in each direction for which a policy has a rule. An empty rule
        # allows nothing, so it only turns on this default for ingress. For egress, the deny rule
        # below turns it on.
        "ingress": [{}],
        "egressDeny": [{"toCIDR": list(flows.METADATA)}],
    }
    return {"default": default, **{each.component: _policy(each) for each in rules}}


def _policy(rules: Rules) -> pods.Spec:
    spec = {
        "endpointSelector": pods.selector(rules.component),
        "ingress": list(_ingress(rules)),
        "egress": list(_egress(rules)),
    }
    if rules.world:
        storage = _ports(flows.STORAGE_PORTS, "TCP", "UDP")
        spec["egressDeny"] = [
            # These pods may reach Cilium's entity `world`. If the API server runs outside the
            # cluster, it belongs to `world` too. So deny Kubernetes' API explicitly.
            _to("toEntities", ["kube-apiserver"], _tcp(flows.API_PORTS)),
            _to("toEntities", ["world"], [storage]),
        ]
    return {section: found for section, found in spec.items() if found}


def _ingress(rules: Rules) -> Iterator[pods.Spec]:
    for flow in rules.asked:
        yield _to("fromEndpoints", [pods.selector(*flow.by)], _of(flow))
    if rules.open_port:
        yield _to("fromEntities", _ALL_CLIENTS, _tcp([rules.open_port]))
    if rules.machines_port:
        yield _to("fromEntities", list(flows.MACHINES), _tcp([rules.machines_port]))
    if rules.scrapers:
        port = _tcp([c.SCRAPED[rules.component]])
        yield _to("fromEndpoints", _namespaces(rules.scrapers), port)


def _egress(rules: Rules) -> Iterator[pods.Spec]:
    for flow in rules.asks:
        yield _to("toEndpoints", [pods.selector(*flow.to)], _of(flow))
    servers = [rule for reach in rules.reaches for rule in _reached(reach)]
    world = list(_world(rules))
    if rules.dns:
        # Cilium learns the address of a name from the DNS answers that pods receive. Cilium reads
        # these answers only if the policy has a DNS rule. So rules with names require a DNS rule.
        by_name = any("toFQDNs" in rule for rule in (*servers, *world))
        ports = [_ports([flows.DNS_PORT], "TCP", "UDP")]
        if by_name:
            ports[0]["rules"] = {"dns": [{"matchPattern": "*"}]}
        yield _to("toEndpoints", [_DNS], ports)
        # Also allow machines, because a DNS server may be a process of a machine, or a pod in a
        # machine's network.
        yield _to("toEntities", list(flows.MACHINES), ports)
    yield from world
    yield from servers


def _world(rules: Rules) -> Iterator[pods.Spec]:
    if rules.names is None and rules.world:
        yield {"toCIDRSet": list(rules.world)}
    elif rules.names:
        yield {"toFQDNs": [_name(name) for name in rules.names]}


def _reached(reach: Reach) -> Iterator[pods.Spec]:
    ports = _tcp(reach.ports)
    if reach.entities:
        yield _to("toEntities", list(reach.entities), ports)
    addresses = [str(ip_network(server)) for server in reach.servers if _is_address(server)]
    names = [server for server in reach.servers if not _is_address(server)]
    inside = [*_namespaces(reach.namespaces), *(each for name in names for each in _service(name))]
    if inside:
        yield _to("toEndpoints", inside, ports)
    if addresses:
        yield _to("toCIDR", addresses, ports)
    if outside := [name for name in names if _may_be_outside(name)]:
        yield _to("toFQDNs", [_name(name) for name in outside], ports)


def _is_address(server: str) -> bool:
    try:
        ip_network(server)
    except ValueError:
        return False
    return True


def _service(name: str) -> Iterator[pods.Spec]:
    """Select all pods in a server's namespace, if the server's name may be the name of a Service.

    The whole namespace is selected, because Cilium cannot match pods by DNS name.

    `collector` is a Service in the same namespace. `loki.logs.svc` is a Service in the namespace
    `logs`. `loki.logs` may be the same Service, or an external server.
    """
    labels = name.split(".")
    if len(labels) == 1:
        yield {}
    elif len(labels) == 2 or labels[2] == "svc":
        yield from _namespaces(labels[1:2])


def _may_be_outside(name: str) -> bool:
    labels = name.split(".")
    return len(labels) > 1 and labels[2:3] != ["svc"]


def _name(name: str) -> pods.Spec:
    return {"matchPattern" if "*" in name else "matchName": name}


def _namespaces(names: Iterable[str]) -> list[pods.Spec]:
    return [{"matchLabels": {_NAMESPACE: name}} for name in names]


def _of(flow: Flow) -> list[pods.Spec]:
    return _tcp([flow.port]) if flow.port else []


def _tcp(ports: Iterable[int]) -> list[pods.Spec]:
    return [_ports(ports, "TCP")]


def _ports(ports: Iterable[int], *protocols: str) -> pods.Spec:
    return {
        "ports": [
            {"port": str(port), "protocol": protocol} for port in ports for protocol in protocols
        ]
    }


def _to(peers: str, them: list[Any], ports: list[pods.Spec]) -> pods.Spec:
    """Return a rule for peers of one kind, because Cilium accepts only one kind in a rule."""
    return {peers: them, **({"toPorts": ports} if ports else {})}
