"""Tests of the judge (judge.py) with published examples of network policies, called recipes. For
each example, the judge must allow and refuse the right connections.

The examples for Kubernetes come from two pages of Kubernetes' documentation, "Network Policies" and
"Declare Network Policy", and from the collection "Kubernetes Network Policy Recipes". The examples
for Cilium come from these pages of Cilium's documentation: "Layer 3 Policies", "Layer 4 Policies",
"Layer 7 Policies", "Deny Policies", "Endpoint default policy" and "Using Kubernetes Constructs in
Policy".
"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.network.judge import Connection, End, Judge, Spec, Unjudged, machine, outside

Policy = dict[str, Any]

WEB = End(
    "web",
    labels={"app": "web", "tier": "front"},
    address="10.244.0.2",
    ports={"http": ("TCP", 8080), "dns": ("UDP", 5353)},
)
API = End("api", labels={"app": "api", "tier": "back"}, address="10.244.0.3")
BARE = End("bare", address="10.244.0.4")
OPS = End(
    "ops",
    namespace="ops",
    labels={"app": "web"},
    namespace_labels={"team": "ops"},
    address="10.244.1.2",
    machine="node-1",
)
NAMES = End("names", namespace="kube-system", labels={"k8s-app": "kube-dns"}, address="10.244.1.3")
HERE = machine("node-0", "10.0.0.1")
THERE = machine("node-1", "10.0.0.2")
MASTER = machine("node-2", "10.0.0.3", api=True)
MANAGED = outside("203.0.113.9", api=True)
SITE = outside("203.0.113.80", "www.example.org")
DEEP = outside("203.0.113.81", "a.b.example.org")
NEAR = outside("192.0.2.7")
METADATA = outside("169.254.169.254")
ENDS = (WEB, API, BARE, OPS, NAMES, HERE, THERE, MASTER, MANAGED, SITE, DEEP, NEAR, METADATA)


def kubernetes(selector: Spec | None = None, **spec: Any) -> Policy:
    return {
        "kind": "NetworkPolicy",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"podSelector": selector or {}, **spec},
    }


def cilium(selector: Spec | None = None, **spec: Any) -> Policy:
    return {
        "kind": "CiliumNetworkPolicy",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"endpointSelector": selector or {}, **spec},
    }


def app(*names: str) -> Policy:
    return {"matchExpressions": [{"key": "app", "operator": "In", "values": list(names)}]}


def namespace(**labels: str) -> list[Policy]:
    return [{"namespaceSelector": {"matchLabels": labels}}]


def tcp(*ports: str | int, **more: Any) -> list[Policy]:
    """Return TCP ports: numbers for NetworkPolicies, text for CiliumNetworkPolicies."""
    return [{"port": port, "protocol": "TCP", **more} for port in ports]


ASKS_DNS = {
    "toEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system"}}],
    "toPorts": [{"ports": [{"port": "53"}], "rules": {"dns": [{"matchPattern": "*.example.org"}]}}],
}
"""Rule that allows DNS queries for these names, and makes Cilium read the replies."""


@dataclass(frozen=True)
class Case:
    sentence: str
    policies: tuple[Policy, ...]
    connections: tuple[Connection, ...]
    allowed: tuple[bool, ...]
    plugins: tuple[str, ...] = ("another plugin", "cilium")


def case(
    sentence: str,
    *policies: Policy,
    yes: tuple[Connection, ...] = (),
    no: tuple[Connection, ...] = (),
    plugin: str | None = None,
) -> Case:
    """Return a case with allowed connections (`yes`) and refused connections (`no`).

    The case applies to the network plugin `plugin`, and by default to Cilium and to other plugins.
    With a CiliumNetworkPolicy, the case always applies only to Cilium.
    """
    plugins = (plugin,) if plugin else ("another plugin", "cilium")
    if any(policy["kind"] == "CiliumNetworkPolicy" for policy in policies):
        plugins = ("cilium",)
    return Case(sentence, policies, yes + no, (True,) * len(yes) + (False,) * len(no), plugins)


def to(source: End, target: End, port: int = 80, protocol: str = "TCP") -> Connection:
    return Connection(source, target, port, protocol)


IN, OUT = {"policyTypes": ["Ingress"]}, {"policyTypes": ["Egress"]}
BOTH = {"policyTypes": ["Ingress", "Egress"]}

CASES = [
    # --- NetworkPolicies: directions that they deny by default
    case(
        "without policies every connection is allowed",
        yes=(to(WEB, API), to(WEB, SITE), to(SITE, WEB), to(OPS, WEB, 53, "UDP")),
    ),
    case(
        "a policy without rules refuses all ingress",
        kubernetes(app("web"), **IN),
        yes=(to(WEB, API), to(API, BARE), to(API, OPS)),
        no=(to(API, WEB), to(OPS, WEB), to(SITE, WEB)),
    ),
    case(
        "an empty selector selects all pods of the policy's namespace and no others",
        kubernetes({}, **IN),
        yes=(to(WEB, OPS),),
        no=(to(WEB, API), to(API, BARE), to(OPS, BARE)),
    ),
    case(
        "an egress policy does not restrict ingress",
        kubernetes({}, **OUT),
        yes=(to(OPS, WEB), to(SITE, WEB)),
        no=(to(WEB, API), to(WEB, OPS), to(WEB, SITE), to(WEB, NAMES, 53, "UDP")),
    ),
    case(
        "a policy without types restricts only ingress",
        kubernetes({}),
        yes=(to(WEB, SITE),),
        no=(to(SITE, WEB),),
    ),
    case(
        "a policy without types also restricts egress if it has egress rules",
        kubernetes({}, egress=[{"to": [{"podSelector": app("api")}]}], ingress=[{}]),
        yes=(to(WEB, API), to(SITE, WEB)),
        no=(to(WEB, BARE), to(WEB, SITE)),
    ),
    case(
        "rules for a direction that policyTypes omits are ignored",
        kubernetes({}, egress=[{"to": [{"podSelector": app("api")}]}], ingress=[{}], **IN),
        yes=(to(WEB, SITE), to(WEB, BARE)),
    ),
    case(
        "a connection must be allowed by both egress and ingress",
        kubernetes(app("web"), egress=[{}], **OUT),
        kubernetes(app("api"), **IN),
        yes=(to(WEB, BARE),),
        no=(to(WEB, API),),
    ),
    # --- Peers
    case(
        "an empty rule allows every peer",
        kubernetes(app("web"), ingress=[{}]),
        yes=(to(API, WEB), to(OPS, WEB), to(SITE, WEB), to(THERE, WEB)),
    ),
    case(
        "an empty list of peers allows every peer",
        kubernetes(app("web"), ingress=[{"from": [], "ports": tcp(80)}]),
        yes=(to(SITE, WEB),),
        no=(to(SITE, WEB, 81),),
    ),
    case(
        "a pod selector matches labels in the policy's own namespace",
        kubernetes(app("api"), ingress=[{"from": [{"podSelector": app("web")}]}]),
        yes=(to(WEB, API),),
        no=(to(BARE, API), to(OPS, API), to(NEAR, API)),
    ),
    case(
        "an empty pod selector matches all pods of the policy's namespace and no others",
        kubernetes(app("api"), ingress=[{"from": [{"podSelector": {}}]}]),
        yes=(to(WEB, API), to(BARE, API)),
        no=(to(OPS, API), to(SITE, API), to(THERE, API)),
    ),
    case(
        "an empty namespace selector matches all pods of all namespaces",
        kubernetes(app("api"), ingress=[{"from": [{"namespaceSelector": {}}]}]),
        yes=(to(WEB, API), to(OPS, API)),
        no=(to(SITE, API),),
    ),
    case(
        "a namespace selector matches labels, and the namespace's name is one of them",
        kubernetes(
            app("api"),
            ingress=[
                {"from": namespace(team="ops"), "ports": tcp(1)},
                {"from": namespace(**{"kubernetes.io/metadata.name": "ops"}), "ports": tcp(2)},
            ],
        ),
        yes=(to(OPS, API, 1), to(OPS, API, 2)),
        no=(to(NAMES, API, 1), to(WEB, API, 2), to(OPS, API, 3)),
    ),
    case(
        "the pod selector and the namespace selector of one peer must both match",
        kubernetes(
            app("api"),
            ingress=[{"from": [{"namespaceSelector": {}, "podSelector": app("web")}]}],
        ),
        yes=(to(WEB, API), to(OPS, API)),
        no=(to(BARE, API), to(NAMES, API)),
    ),
    case(
        "a match of one of two peers is enough",
        kubernetes(
            app("api"),
            ingress=[
                {
                    "from": [
                        *namespace(team="ops"),
                        {"podSelector": app("web")},
                    ]
                }
            ],
        ),
        yes=(to(WEB, API), to(OPS, API)),
        no=(to(BARE, API), to(NAMES, API)),
    ),
    case(
        "NotIn also matches a pod that lacks the label",
        kubernetes(
            app("api"),
            ingress=[
                {
                    "from": [
                        {
                            "podSelector": {
                                "matchExpressions": [
                                    {"key": "app", "operator": "NotIn", "values": ["web"]}
                                ]
                            }
                        }
                    ]
                }
            ],
        ),
        yes=(to(BARE, API),),
        no=(to(WEB, API),),
    ),
    case(
        "a selector may require that a label exists or does not exist",
        kubernetes(
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            ingress=[
                {
                    "from": [
                        {
                            "podSelector": {
                                "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]
                            }
                        }
                    ]
                }
            ],
        ),
        yes=(to(BARE, API), to(API, BARE)),
        no=(to(WEB, API),),
    ),
    # --- Addresses
    case(
        "an address block excludes its exceptions",
        kubernetes(
            {},
            egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]}],
            **OUT,
        ),
        yes=(to(WEB, SITE), to(WEB, NEAR, 53, "UDP")),
        no=(to(WEB, METADATA), to(WEB, outside("2001:db8::1"))),
    ),
    case(
        "another rule may allow an excluded address",
        kubernetes(
            {},
            egress=[
                {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]},
                {"ports": tcp(80)},
            ],
            **OUT,
        ),
        yes=(to(WEB, METADATA, 80),),
        no=(to(WEB, METADATA, 443),),
    ),
    case(
        "address blocks match pods and machines",
        kubernetes({}, egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}], **OUT),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, THERE)),
        no=(to(WEB, SITE),),
        plugin="another plugin",
    ),
    case(
        "with Cilium, address blocks match neither pods nor machines",
        kubernetes({}, egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}], **OUT),
        yes=(to(WEB, SITE), to(WEB, MANAGED)),
        no=(to(WEB, API), to(WEB, OPS), to(WEB, THERE), to(WEB, MASTER, 6443)),
        plugin="cilium",
    ),
    case(
        "only IPv6 blocks match IPv6 addresses",
        kubernetes(
            {}, egress=[{"to": [{"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}}]}], **OUT
        ),
        yes=(to(WEB, outside("2001:db8::1")),),
        no=(to(WEB, outside("fd00:ec2::254")), to(WEB, SITE)),
    ),
    # --- Ports
    case(
        "a port without a protocol means TCP",
        kubernetes(app("web"), ingress=[{"ports": [{"port": 53}]}]),
        yes=(to(API, WEB, 53),),
        no=(to(API, WEB, 53, "UDP"), to(API, WEB, 54)),
    ),
    case(
        "a protocol without a port matches all ports of the protocol",
        kubernetes(app("web"), ingress=[{"ports": [{"protocol": "UDP"}]}]),
        yes=(to(API, WEB, 1, "UDP"), to(API, WEB, 65535, "UDP")),
        no=(to(API, WEB, 1),),
    ),
    case(
        "a range of ports includes its first and last port",
        kubernetes({}, egress=[{"ports": tcp(32000, endPort=32768)}], **OUT),
        yes=(to(WEB, API, 32000), to(WEB, SITE, 32768), to(WEB, API, 32400)),
        no=(to(WEB, API, 31999), to(WEB, API, 32769), to(WEB, API, 32400, "UDP")),
    ),
    case(
        "a port name means the port of that name in the target pod",
        kubernetes(app("web"), ingress=[{"ports": tcp("http")}]),
        kubernetes(app("api"), egress=[{"ports": tcp("http")}], ingress=[{}]),
        yes=(to(BARE, WEB, 8080), to(API, WEB, 8080)),
        no=(to(BARE, WEB, 80), to(API, BARE, 8080), to(API, SITE, 8080)),
    ),
    case(
        "a port name matches only with the right protocol",
        kubernetes(app("web"), ingress=[{"ports": tcp("dns")}]),
        no=(to(API, WEB, 5353), to(API, WEB, 5353, "UDP")),
    ),
    case(
        "peers and ports of one rule must both match",
        kubernetes(
            app("api"), ingress=[{"from": [{"podSelector": app("web")}], "ports": tcp(80, 443)}]
        ),
        yes=(to(WEB, API, 80), to(WEB, API, 443)),
        no=(to(WEB, API, 22), to(BARE, API, 80)),
    ),
    # --- Many policies
    case(
        "several policies allow everything that one of them allows",
        kubernetes({}, **BOTH),
        kubernetes(app("web"), egress=[{"to": [{"podSelector": app("api")}]}], **OUT),
        kubernetes(app("api"), ingress=[{"from": [{"podSelector": app("web")}]}], **IN),
        yes=(to(WEB, API),),
        no=(to(API, WEB), to(BARE, API), to(WEB, BARE)),
    ),
    case(
        "a policy cannot forbid what another policy allows",
        kubernetes(app("web"), ingress=[{}]),
        kubernetes(app("web"), **IN),
        yes=(to(SITE, WEB),),
    ),
    # --- Machines
    case(
        "a machine reaches the pods on it despite policies",
        kubernetes({}, **BOTH),
        yes=(to(HERE, WEB, 10250),),
        no=(to(THERE, WEB, 10250),),
    ),
    case(
        "pods reach the machine that they run on despite policies",
        kubernetes({}, **BOTH),
        yes=(to(WEB, HERE, 9100),),
        no=(to(WEB, THERE, 9100),),
        plugin="another plugin",
    ),
    case(
        "with Cilium, a policy may forbid a pod to reach its machine",
        kubernetes({}, **BOTH),
        no=(to(WEB, HERE, 9100),),
        plugin="cilium",
    ),
    case(
        "policies apply neither to machines nor to pods in the host network",
        kubernetes({}, **BOTH),
        yes=(to(HERE, SITE), to(OPS, HERE), to(SITE, HERE)),
    ),
    # --- CiliumNetworkPolicies: directions that they deny by default
    case(
        "an ingress section denies by default, and an empty rule in it allows nothing",
        cilium({}, ingress=[{}]),
        yes=(to(WEB, SITE),),
        no=(to(WEB, API), to(OPS, WEB), to(SITE, WEB)),
    ),
    case(
        "an empty ingress section is ignored",
        cilium({}, ingress=[], egress=[{}]),
        yes=(to(OPS, WEB), to(SITE, API)),
        no=(to(WEB, OPS),),
    ),
    case(
        "deny rules alone also deny everything else by default",
        cilium({}, egressDeny=[{"toEntities": ["world"]}]),
        yes=(to(OPS, WEB),),
        no=(to(WEB, SITE), to(WEB, API)),
    ),
    case(
        "with enableDefaultDeny off, deny rules deny nothing else",
        cilium(
            {},
            egressDeny=[{"toEntities": ["world"]}],
            enableDefaultDeny={"egress": False},
        ),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, MASTER)),
        no=(to(WEB, SITE), to(WEB, MANAGED)),
    ),
    case(
        "rules of a policy without default deny add to the rules of another policy",
        cilium({}, egress=[{"toEntities": ["world"]}], enableDefaultDeny={"egress": False}),
        cilium(app("api"), egress=[{}]),
        yes=(to(WEB, OPS), to(WEB, SITE), to(API, SITE)),
        no=(to(API, WEB),),
    ),
    # --- Peers
    case(
        "endpoint selectors match pods in the policy's namespace",
        cilium(app("api"), ingress=[{"fromEndpoints": [app("web")]}]),
        yes=(to(WEB, API),),
        no=(to(OPS, API), to(BARE, API), to(SITE, API)),
    ),
    case(
        "an empty endpoint selector matches only the pods of the policy's namespace",
        cilium({}, egress=[{"toEndpoints": [{}]}]),
        yes=(to(WEB, API), to(WEB, BARE)),
        no=(to(WEB, OPS), to(WEB, SITE), to(WEB, THERE), to(WEB, HERE)),
    ),
    case(
        "an empty list of endpoints matches no peer",
        cilium(app("api"), ingress=[{"fromEndpoints": [], "toPorts": [{"ports": tcp("80")}]}]),
        no=(to(WEB, API), to(OPS, API)),
    ),
    case(
        "an endpoint selector may name another namespace",
        cilium(
            app("api"),
            ingress=[
                {
                    "fromEndpoints": [
                        {"matchLabels": {"k8s:io.kubernetes.pod.namespace": "ops", "app": "web"}}
                    ]
                }
            ],
        ),
        yes=(to(OPS, API),),
        no=(to(WEB, API), to(NAMES, API)),
    ),
    case(
        "a selector for any value of the namespace label matches every namespace",
        cilium(
            app("api"),
            ingress=[
                {
                    "fromEndpoints": [
                        {
                            "matchExpressions": [
                                {"key": "k8s:io.kubernetes.pod.namespace", "operator": "Exists"}
                            ]
                        }
                    ]
                }
            ],
        ),
        yes=(to(OPS, API), to(WEB, API)),
        no=(to(SITE, API), to(THERE, API)),
    ),
    case(
        "the source prefix of a Kubernetes label makes no difference",
        cilium({"matchLabels": {"k8s:app": "api"}}, ingress=[{"fromEndpoints": [app("web")]}]),
        cilium({"matchLabels": {"any:app": "api"}}, ingress=[{"fromEndpoints": [app("bare")]}]),
        yes=(to(WEB, API),),
        no=(to(BARE, API),),
    ),
    # --- Entities
    case(
        "the entity world means everything outside, including an external API server",
        cilium({}, egress=[{"toEntities": ["world"]}]),
        yes=(to(WEB, SITE), to(WEB, METADATA), to(WEB, MANAGED)),
        no=(to(WEB, API), to(WEB, THERE), to(WEB, MASTER, 6443)),
    ),
    case(
        "the entity cluster means all pods and machines, and nothing outside",
        cilium({}, egress=[{"toEntities": ["cluster"]}]),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, HERE), to(WEB, THERE)),
        no=(to(WEB, SITE), to(WEB, MANAGED)),
    ),
    case(
        "the entity host means the machine of the pod",
        cilium({}, egress=[{"toEntities": ["host"]}]),
        yes=(to(WEB, HERE),),
        no=(to(WEB, THERE), to(WEB, SITE)),
    ),
    case(
        "the entity remote-node means all other machines",
        cilium({}, egress=[{"toEntities": ["remote-node"]}]),
        yes=(to(WEB, THERE), to(WEB, MASTER)),
        no=(to(WEB, HERE), to(WEB, SITE)),
    ),
    case(
        "the entity kube-apiserver means the API server inside or outside the cluster",
        cilium(
            {},
            egress=[{"toEntities": ["kube-apiserver"], "toPorts": [{"ports": tcp("6443")}]}],
        ),
        yes=(to(WEB, MASTER, 6443), to(WEB, MANAGED, 6443)),
        no=(to(WEB, MASTER, 10250), to(WEB, THERE, 6443), to(WEB, SITE, 6443)),
    ),
    case(
        "the entity all matches every peer",
        cilium(app("web"), ingress=[{"fromEntities": ["all"], "toPorts": [{"ports": tcp("80")}]}]),
        yes=(to(API, WEB), to(OPS, WEB), to(THERE, WEB), to(SITE, WEB)),
        no=(to(SITE, WEB, 81),),
    ),
    # --- Addresses and names
    case(
        "CIDR rules match only peers outside the cluster",
        cilium({}, egress=[{"toCIDR": ["0.0.0.0/0"]}]),
        yes=(to(WEB, SITE), to(WEB, METADATA)),
        no=(to(WEB, API), to(WEB, OPS), to(WEB, THERE)),
    ),
    case(
        "a single address is a valid CIDR",
        cilium({}, egress=[{"toCIDR": ["203.0.113.80"]}]),
        yes=(to(WEB, SITE),),
        no=(to(WEB, DEEP),),
    ),
    case(
        "a CIDR set excludes its exceptions",
        cilium({}, egress=[{"toCIDRSet": [{"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}]}]),
        yes=(to(WEB, SITE),),
        no=(to(WEB, METADATA),),
    ),
    case(
        "a DNS name matches if Cilium reads the DNS query for it",
        cilium({}, egress=[ASKS_DNS, {"toFQDNs": [{"matchName": "www.example.org"}]}]),
        yes=(to(WEB, SITE), to(WEB, SITE, 443)),
        no=(to(WEB, NEAR), to(WEB, DEEP), to(WEB, API)),
    ),
    case(
        "a DNS name does not match if Cilium does not read the DNS query",
        cilium(
            {},
            egress=[
                {"toEntities": ["cluster"], "toPorts": [{"ports": [{"port": "53"}]}]},
                {"toFQDNs": [{"matchName": "www.example.org"}]},
            ],
        ),
        yes=(to(WEB, NAMES, 53, "UDP"),),
        no=(to(WEB, SITE),),
    ),
    case(
        "a DNS name does not match if the DNS query is refused",
        cilium({}, egress=[ASKS_DNS, {"toFQDNs": [{"matchPattern": "*.*.example.org"}]}]),
        no=(to(WEB, DEEP),),
    ),
    case(
        "a star in a DNS name matches no dot",
        cilium(
            {},
            egress=[
                {**ASKS_DNS, "toPorts": [
                    {"ports": [{"port": "53"}], "rules": {"dns": [{"matchPattern": "*"}]}}
                ]},
                {"toFQDNs": [{"matchPattern": "*.example.org"}]},
            ],
        ),
        yes=(to(WEB, SITE),),
        no=(to(WEB, DEEP), to(WEB, outside("203.0.113.1", "example.org"))),
    ),
    case(
        "a rule with DNS names may list ports",
        cilium(
            {},
            egress=[
                ASKS_DNS,
                {
                    "toFQDNs": [{"matchName": "www.example.org"}],
                    "toPorts": [{"ports": tcp("443")}],
                },
            ],
        ),
        yes=(to(WEB, SITE, 443),),
        no=(to(WEB, SITE, 80), to(WEB, SITE, 443, "UDP")),
    ),
    # --- Ports
    case(
        "a rule with only ports matches every peer",
        cilium({}, egress=[{"toPorts": [{"ports": tcp("80")}]}]),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, SITE), to(WEB, THERE)),
        no=(to(WEB, SITE, 443), to(WEB, SITE, 80, "UDP")),
    ),
    case(
        "a port without a protocol matches every protocol",
        cilium({}, egress=[{"toPorts": [{"ports": [{"port": "53"}]}]}]),
        yes=(to(WEB, NAMES, 53), to(WEB, NAMES, 53, "UDP"), to(WEB, SITE, 53, "SCTP")),
        no=(to(WEB, NAMES, 54), to(WEB, NAMES, 0, "ICMP")),
    ),
    case(
        "port 0 means every port",
        cilium({}, egress=[{"toPorts": [{"ports": tcp("0")}]}]),
        yes=(to(WEB, SITE, 1), to(WEB, SITE, 65535)),
        no=(to(WEB, SITE, 1, "UDP"),),
    ),
    case(
        "a port range includes its first and last port",
        cilium({}, egress=[{"toPorts": [{"ports": tcp("80", endPort=444)}]}]),
        yes=(to(WEB, SITE, 80), to(WEB, SITE, 444)),
        no=(to(WEB, SITE, 79), to(WEB, SITE, 445)),
    ),
    case(
        "a port name means the target pod's port",
        cilium(app("web"), ingress=[{"toPorts": [{"ports": tcp("http")}]}]),
        yes=(to(API, WEB, 8080),),
        no=(to(API, WEB, 80),),
    ),
    case(
        "endpoints and ports of one rule must both match",
        cilium(
            app("api"),
            ingress=[{"fromEndpoints": [app("web")], "toPorts": [{"ports": tcp("80")}]}],
        ),
        yes=(to(WEB, API),),
        no=(to(WEB, API, 81), to(BARE, API), to(WEB, API, 0, "ICMP")),
    ),
    # --- Denials: the table of "Deny Policies"
    *(
        case(
            f"a policy allows a source, and {sentence}",
            cilium(app("web"), ingress=[{"fromEndpoints": [app("api")]}]),
            *([cilium(app("web"), ingressDeny=denied)] if denied else []),
            yes=tuple(each for each in (to(API, WEB, 81), to(API, WEB, 80), to(API, WEB, 0, "ICMP"))
                      if each.port in left),
            no=tuple(each for each in (to(API, WEB, 81), to(API, WEB, 80), to(API, WEB, 0, "ICMP"))
                     if each.port not in left),
        )
        for sentence, denied, left in (
            ("nothing is denied", [], (81, 80, 0)),
            ("one port is denied", [{"toPorts": [{"ports": tcp("80")}]}], (81, 0)),
            ("the source is denied", [{"fromEndpoints": [app("api")]}], ()),
            ("both the port and the source are denied", [{"toPorts": [{"ports": tcp("80")}]},
                                 {"fromEndpoints": [app("api")]}], ()),
        )
    ),
    case(
        "a deny rule overrides policies of both kinds",
        kubernetes({}, egress=[{}], **OUT),
        cilium({}, egress=[{"toEntities": ["all"]}], egressDeny=[{"toCIDR": ["169.254.0.0/16"]}]),
        yes=(to(WEB, SITE), to(WEB, API)),
        no=(to(WEB, METADATA), to(WEB, METADATA, 53, "UDP")),
    ),
    case(
        "a DNS name does not match if its address is denied",
        cilium(
            {},
            egress=[ASKS_DNS, {"toFQDNs": [{"matchName": "trap.example.org"}]}],
            egressDeny=[{"toCIDR": ["169.254.0.0/16"]}],
        ),
        no=(to(WEB, outside("169.254.169.254", "trap.example.org")),),
    ),
    case(
        "a deny rule with addresses does not match pods",
        cilium({}, egress=[{"toEndpoints": [{}]}], egressDeny=[{"toCIDR": ["10.0.0.0/8"]}]),
        yes=(to(WEB, API),),
    ),
    case(
        "Cilium allows what NetworkPolicies or CiliumNetworkPolicies allow",
        kubernetes(app("api"), ingress=[{"from": [{"podSelector": app("web")}]}]),
        cilium(app("api"), ingress=[{"fromEndpoints": [{"matchLabels": {"tier": "none"}}]}]),
        yes=(to(WEB, API),),
        no=(to(BARE, API),),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "plugin"),
    [(one, plugin) for one in CASES for plugin in one.plugins],
    ids=[f"{one.sentence} ({plugin})" for one in CASES for plugin in one.plugins],
)
def test_judge_agrees_with_the_published_recipe(one: Case, plugin: str) -> None:
    judge = Judge(one.policies, cilium=plugin == "cilium")

    verdicts = [judge.allows(connection) for connection in one.connections]

    descriptions = [
        f"{a.source.name} to {a.target.name}:{a.port}/{a.protocol}" for a in one.connections
    ]
    assert dict(zip(descriptions, verdicts, strict=True)) == dict(
        zip(descriptions, one.allowed, strict=True)
    )


def test_dns_queries_may_contain_only_names_that_rules_list() -> None:
    judge = Judge([cilium({}, egress=[ASKS_DNS])], cilium=True)
    connection = to(WEB, NAMES, 53, "UDP")

    assert judge.allows_look_up(connection, "www.example.org")
    assert not judge.allows_look_up(connection, "www.example.com")
    assert not judge.allows_look_up(to(WEB, SITE, 53, "UDP"), "www.example.org")


def test_one_rule_without_names_allows_every_dns_query() -> None:
    free = {"toEntities": ["cluster"], "toPorts": [{"ports": [{"port": "53"}]}]}
    judge = Judge([cilium({}, egress=[ASKS_DNS, free])], cilium=True)

    assert judge.allows_look_up(to(WEB, NAMES, 53, "UDP"), "www.example.com")


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (kubernetes({}, ingres=[]), "spec: ingres"),
        (kubernetes({"matchLabel": {}}, ingress=[]), "selector: matchLabel"),
        (kubernetes(ingress=[{"from": [{"ipBlock": {"cidr": "::/0"}, "podSelector": {}}]}]), "ipB"),
        (kubernetes(ingress=[{"from": [{"service": "a"}]}]), "peer: service"),
        (kubernetes(ingress=[{"ports": [{"port": "http", "endPort": 80}]}]), "endPort: 80"),
        (kubernetes(ingress=[{"ports": [{"port": 81, "endPort": 80}]}]), "endPort: 80 after 81"),
        (cilium(ingress=[{"fromEndpoints": [{}], "fromEntities": ["all"]}]), "accepts only one"),
        (cilium(egress=[{"toServices": [{}]}]), "toServices"),
        (cilium(egress=[{"toEntities": ["moon"]}]), "entity: moon"),
        (cilium(egressDeny=[{"toFQDNs": [{"matchName": "a.b"}]}]), "toFQDNs"),
        (cilium(egress=[{"toFQDNs": [{"matchName": "*.b"}]}]), "is a pattern"),
        (cilium(egress=[{"toPorts": [{"ports": [{"port": 80}]}]}]), "expected text"),
        (cilium(egress=[{"toPorts": [{"ports": tcp(*map(str, range(41)))}]}]), "41 ports"),
        (cilium(egress=[{"toPorts": [{"ports": [{"port": "80", "protocol": "HTTP"}]}]}]), "HTTP"),
        (cilium(egress=[{"toPorts": [{"ports": tcp("80"), "rules": {"http": [{}]}}]}]), "http"),
        (cilium(egress=[{"toPorts": [{"ports": tcp("80"), "rules": {"dns": [{}]}}]}]), "port 53"),
        (cilium(ingress=[{"toPorts": [{"ports": tcp("53"), "rules": {"dns": [{}]}}]}]), "egress"),
        (cilium({"matchLabels": {"reserved:host": ""}}, ingress=[{}]), "label: reserved:host"),
        (cilium({"matchLabels": {"io.kubernetes.pod.namespace": "a"}}), "remove the namespace"),
        ({"kind": "Service", "metadata": {"namespace": "a"}, "spec": {}}, "kind: Service"),
    ],
)
def test_unknown_or_invalid_policy_raises_unjudged(policy: Policy, what: str) -> None:
    with pytest.raises(Unjudged, match=what):
        Judge([policy], cilium=True)


def test_exception_outside_its_address_block_raises_unjudged() -> None:
    judge = Judge(
        [cilium(egress=[{"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["192.0.2.0/24"]}]}])],
        cilium=True,
    )

    with pytest.raises(Unjudged, match="is not inside"):
        judge.allows(to(WEB, SITE))


def test_only_cilium_reads_cilium_network_policies() -> None:
    with pytest.raises(Unjudged, match="kind: CiliumNetworkPolicy"):
        Judge([cilium(ingress=[{}])], cilium=False)
