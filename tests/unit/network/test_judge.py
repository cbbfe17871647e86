"""The judge knows what policies mean: the published recipes of their behaviour, as cases.

Sources: Kubernetes' documentation, "Network Policies" and "Declare Network Policy"; the collection
"Kubernetes Network Policy Recipes"; Cilium's documentation, "Layer 3 Policies", "Layer 4 Policies",
"Layer 7 Policies", "Deny Policies", "Endpoint default policy" and "Using Kubernetes Constructs in
Policy".
"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.network.judge import Ask, End, Judge, Spec, Unjudged, machine, outside

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
    """For NetworkPolicies by number, for CiliumNetworkPolicies by text."""
    return [{"port": port, "protocol": "TCP", **more} for port in ports]


ASKS_DNS = {
    "toEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system"}}],
    "toPorts": [{"ports": [{"port": "53"}], "rules": {"dns": [{"matchPattern": "*.example.org"}]}}],
}
"""DNS may be asked, and Cilium reads the answers about these names."""


@dataclass(frozen=True)
class Case:
    sentence: str
    policies: tuple[Policy, ...]
    asks: tuple[Ask, ...]
    allowed: tuple[bool, ...]
    plugins: tuple[str, ...] = ("another", "cilium")


def case(
    sentence: str,
    *policies: Policy,
    yes: tuple[Ask, ...] = (),
    no: tuple[Ask, ...] = (),
    plugin: str | None = None,
) -> Case:
    """What is allowed and what is not; by every plugin, but where one is named."""
    plugins = (plugin,) if plugin else ("another", "cilium")
    if any(policy["kind"] == "CiliumNetworkPolicy" for policy in policies):
        plugins = ("cilium",)
    return Case(sentence, policies, yes + no, (True,) * len(yes) + (False,) * len(no), plugins)


def to(source: End, target: End, port: int = 80, protocol: str = "TCP") -> Ask:
    return Ask(source, target, port, protocol)


IN, OUT = {"policyTypes": ["Ingress"]}, {"policyTypes": ["Egress"]}
BOTH = {"policyTypes": ["Ingress", "Egress"]}

CASES = [
    # --- NetworkPolicies: what is closed
    case(
        "without a policy everything is allowed",
        yes=(to(WEB, API), to(WEB, SITE), to(SITE, WEB), to(OPS, WEB, 53, "UDP")),
    ),
    case(
        "a policy without rules lets nobody in, from no side",
        kubernetes(app("web"), **IN),
        yes=(to(WEB, API), to(API, BARE), to(API, OPS)),
        no=(to(API, WEB), to(OPS, WEB), to(SITE, WEB)),
    ),
    case(
        "an empty selector is of all pods of the policy's namespace, and of no other's",
        kubernetes({}, **IN),
        yes=(to(WEB, OPS),),
        no=(to(WEB, API), to(API, BARE), to(OPS, BARE)),
    ),
    case(
        "a policy of egress leaves the way in open",
        kubernetes({}, **OUT),
        yes=(to(OPS, WEB), to(SITE, WEB)),
        no=(to(WEB, API), to(WEB, OPS), to(WEB, SITE), to(WEB, NAMES, 53, "UDP")),
    ),
    case(
        "who says nothing of types means ingress",
        kubernetes({}),
        yes=(to(WEB, SITE),),
        no=(to(SITE, WEB),),
    ),
    case(
        "and egress too where there are rules for it",
        kubernetes({}, egress=[{"to": [{"podSelector": app("api")}]}], ingress=[{}]),
        yes=(to(WEB, API), to(SITE, WEB)),
        no=(to(WEB, BARE), to(WEB, SITE)),
    ),
    case(
        "rules for a direction that is not among the types count for nothing",
        kubernetes({}, egress=[{"to": [{"podSelector": app("api")}]}], ingress=[{}], **IN),
        yes=(to(WEB, SITE), to(WEB, BARE)),
    ),
    case(
        "a connection needs to be let out and let in",
        kubernetes(app("web"), egress=[{}], **OUT),
        kubernetes(app("api"), **IN),
        yes=(to(WEB, BARE),),
        no=(to(WEB, API),),
    ),
    # --- Who is meant
    case(
        "an empty rule allows everybody",
        kubernetes(app("web"), ingress=[{}]),
        yes=(to(API, WEB), to(OPS, WEB), to(SITE, WEB), to(THERE, WEB)),
    ),
    case(
        "an empty list of peers is everybody as well",
        kubernetes(app("web"), ingress=[{"from": [], "ports": tcp(80)}]),
        yes=(to(SITE, WEB),),
        no=(to(SITE, WEB, 81),),
    ),
    case(
        "pods are meant by their labels, in the policy's own namespace",
        kubernetes(app("api"), ingress=[{"from": [{"podSelector": app("web")}]}]),
        yes=(to(WEB, API),),
        no=(to(BARE, API), to(OPS, API), to(NEAR, API)),
    ),
    case(
        "an empty pod selector is every pod of the own namespace, and nobody else",
        kubernetes(app("api"), ingress=[{"from": [{"podSelector": {}}]}]),
        yes=(to(WEB, API), to(BARE, API)),
        no=(to(OPS, API), to(SITE, API), to(THERE, API)),
    ),
    case(
        "an empty namespace selector is every pod of every namespace",
        kubernetes(app("api"), ingress=[{"from": [{"namespaceSelector": {}}]}]),
        yes=(to(WEB, API), to(OPS, API)),
        no=(to(SITE, API),),
    ),
    case(
        "namespaces are meant by their labels, one of which is the name",
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
        "selectors of pods and namespaces in one peer must both be met",
        kubernetes(
            app("api"),
            ingress=[{"from": [{"namespaceSelector": {}, "podSelector": app("web")}]}],
        ),
        yes=(to(WEB, API), to(OPS, API)),
        no=(to(BARE, API), to(NAMES, API)),
    ),
    case(
        "in two peers either is enough",
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
        "who has no such label is not in a list, and is not outside of one either",
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
        "labels may have to be there, or not to be",
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
        "a block of addresses is without what it excepts",
        kubernetes(
            {},
            egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]}],
            **OUT,
        ),
        yes=(to(WEB, SITE), to(WEB, NEAR, 53, "UDP")),
        no=(to(WEB, METADATA), to(WEB, outside("2001:db8::1"))),
    ),
    case(
        "an exception is one of its own rule, and another rule may allow it",
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
        "addresses may be those of pods and machines",
        kubernetes({}, egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}], **OUT),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, THERE)),
        no=(to(WEB, SITE),),
        plugin="another",
    ),
    case(
        "to Cilium addresses are of neither pods nor machines",
        kubernetes({}, egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}], **OUT),
        yes=(to(WEB, SITE), to(WEB, MANAGED)),
        no=(to(WEB, API), to(WEB, OPS), to(WEB, THERE), to(WEB, MASTER, 6443)),
        plugin="cilium",
    ),
    case(
        "addresses of IPv6 are meant by blocks of IPv6",
        kubernetes(
            {}, egress=[{"to": [{"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}}]}], **OUT
        ),
        yes=(to(WEB, outside("2001:db8::1")),),
        no=(to(WEB, outside("fd00:ec2::254")), to(WEB, SITE)),
    ),
    # --- Ports
    case(
        "a port is of TCP where nobody says",
        kubernetes(app("web"), ingress=[{"ports": [{"port": 53}]}]),
        yes=(to(API, WEB, 53),),
        no=(to(API, WEB, 53, "UDP"), to(API, WEB, 54)),
    ),
    case(
        "a protocol without a port is all of its ports",
        kubernetes(app("web"), ingress=[{"ports": [{"protocol": "UDP"}]}]),
        yes=(to(API, WEB, 1, "UDP"), to(API, WEB, 65535, "UDP")),
        no=(to(API, WEB, 1),),
    ),
    case(
        "a range of ports has both its ends",
        kubernetes({}, egress=[{"ports": tcp(32000, endPort=32768)}], **OUT),
        yes=(to(WEB, API, 32000), to(WEB, SITE, 32768), to(WEB, API, 32400)),
        no=(to(WEB, API, 31999), to(WEB, API, 32769), to(WEB, API, 32400, "UDP")),
    ),
    case(
        "a port's name is what the pod calls it where the connection ends",
        kubernetes(app("web"), ingress=[{"ports": tcp("http")}]),
        kubernetes(app("api"), egress=[{"ports": tcp("http")}], ingress=[{}]),
        yes=(to(BARE, WEB, 8080), to(API, WEB, 8080)),
        no=(to(BARE, WEB, 80), to(API, BARE, 8080), to(API, SITE, 8080)),
    ),
    case(
        "a port's name is of one protocol",
        kubernetes(app("web"), ingress=[{"ports": tcp("dns")}]),
        no=(to(API, WEB, 5353), to(API, WEB, 5353, "UDP")),
    ),
    case(
        "peers and ports of one rule must both be met",
        kubernetes(
            app("api"), ingress=[{"from": [{"podSelector": app("web")}], "ports": tcp(80, 443)}]
        ),
        yes=(to(WEB, API, 80), to(WEB, API, 443)),
        no=(to(WEB, API, 22), to(BARE, API, 80)),
    ),
    # --- Many policies
    case(
        "policies add up",
        kubernetes({}, **BOTH),
        kubernetes(app("web"), egress=[{"to": [{"podSelector": app("api")}]}], **OUT),
        kubernetes(app("api"), ingress=[{"from": [{"podSelector": app("web")}]}], **IN),
        yes=(to(WEB, API),),
        no=(to(API, WEB), to(BARE, API), to(WEB, BARE)),
    ),
    case(
        "what one policy allows no other takes back",
        kubernetes(app("web"), ingress=[{}]),
        kubernetes(app("web"), **IN),
        yes=(to(SITE, WEB),),
    ),
    # --- Machines
    case(
        "a machine reaches its own pods whatever policies say",
        kubernetes({}, **BOTH),
        yes=(to(HERE, WEB, 10250),),
        no=(to(THERE, WEB, 10250),),
    ),
    case(
        "and its pods reach it",
        kubernetes({}, **BOTH),
        yes=(to(WEB, HERE, 9100),),
        no=(to(WEB, THERE, 9100),),
        plugin="another",
    ),
    case(
        "with Cilium a policy may keep a pod from its own machine",
        kubernetes({}, **BOTH),
        no=(to(WEB, HERE, 9100),),
        plugin="cilium",
    ),
    case(
        "policies are not of machines, nor of pods in a machine's network",
        kubernetes({}, **BOTH),
        yes=(to(HERE, SITE), to(OPS, HERE), to(SITE, HERE)),
    ),
    # --- CiliumNetworkPolicies: what is closed
    case(
        "a section that is there closes its direction, and an empty rule in it allows nothing",
        cilium({}, ingress=[{}]),
        yes=(to(WEB, SITE),),
        no=(to(WEB, API), to(OPS, WEB), to(SITE, WEB)),
    ),
    case(
        "a section without rules is none",
        cilium({}, ingress=[], egress=[{}]),
        yes=(to(OPS, WEB), to(SITE, API)),
        no=(to(WEB, OPS),),
    ),
    case(
        "what is denied alone closes the direction as well",
        cilium({}, egressDeny=[{"toEntities": ["world"]}]),
        yes=(to(OPS, WEB),),
        no=(to(WEB, SITE), to(WEB, API)),
    ),
    case(
        "unless it is said not to",
        cilium(
            {},
            egressDeny=[{"toEntities": ["world"]}],
            enableDefaultDeny={"egress": False},
        ),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, MASTER)),
        no=(to(WEB, SITE), to(WEB, MANAGED)),
    ),
    case(
        "a policy that closes nothing allows nothing more where another has closed",
        cilium({}, egress=[{"toEntities": ["world"]}], enableDefaultDeny={"egress": False}),
        cilium(app("api"), egress=[{}]),
        yes=(to(WEB, OPS), to(WEB, SITE), to(API, SITE)),
        no=(to(API, WEB),),
    ),
    # --- Who is meant
    case(
        "endpoints are those of the policy's namespace",
        cilium(app("api"), ingress=[{"fromEndpoints": [app("web")]}]),
        yes=(to(WEB, API),),
        no=(to(OPS, API), to(BARE, API), to(SITE, API)),
    ),
    case(
        "an empty selector is every pod of that namespace, and neither machines nor the world",
        cilium({}, egress=[{"toEndpoints": [{}]}]),
        yes=(to(WEB, API), to(WEB, BARE)),
        no=(to(WEB, OPS), to(WEB, SITE), to(WEB, THERE), to(WEB, HERE)),
    ),
    case(
        "an empty list of endpoints is nobody",
        cilium(app("api"), ingress=[{"fromEndpoints": [], "toPorts": [{"ports": tcp("80")}]}]),
        no=(to(WEB, API), to(OPS, API)),
    ),
    case(
        "a namespace that is named is another one",
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
        "every namespace is meant where the label need only be there",
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
        "a label's source makes no difference where all are Kubernetes'",
        cilium({"matchLabels": {"k8s:app": "api"}}, ingress=[{"fromEndpoints": [app("web")]}]),
        cilium({"matchLabels": {"any:app": "api"}}, ingress=[{"fromEndpoints": [app("bare")]}]),
        yes=(to(WEB, API),),
        no=(to(BARE, API),),
    ),
    # --- Entities
    case(
        "the world is everybody outside, the API there included",
        cilium({}, egress=[{"toEntities": ["world"]}]),
        yes=(to(WEB, SITE), to(WEB, METADATA), to(WEB, MANAGED)),
        no=(to(WEB, API), to(WEB, THERE), to(WEB, MASTER, 6443)),
    ),
    case(
        "the cluster is all pods and machines, and the world is not",
        cilium({}, egress=[{"toEntities": ["cluster"]}]),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, HERE), to(WEB, THERE)),
        no=(to(WEB, SITE), to(WEB, MANAGED)),
    ),
    case(
        "the host is the pod's own machine",
        cilium({}, egress=[{"toEntities": ["host"]}]),
        yes=(to(WEB, HERE),),
        no=(to(WEB, THERE), to(WEB, SITE)),
    ),
    case(
        "remote nodes are the others",
        cilium({}, egress=[{"toEntities": ["remote-node"]}]),
        yes=(to(WEB, THERE), to(WEB, MASTER)),
        no=(to(WEB, HERE), to(WEB, SITE)),
    ),
    case(
        "Kubernetes' API is known wherever it is",
        cilium(
            {},
            egress=[{"toEntities": ["kube-apiserver"], "toPorts": [{"ports": tcp("6443")}]}],
        ),
        yes=(to(WEB, MASTER, 6443), to(WEB, MANAGED, 6443)),
        no=(to(WEB, MASTER, 10250), to(WEB, THERE, 6443), to(WEB, SITE, 6443)),
    ),
    case(
        "all is everybody",
        cilium(app("web"), ingress=[{"fromEntities": ["all"], "toPorts": [{"ports": tcp("80")}]}]),
        yes=(to(API, WEB), to(OPS, WEB), to(THERE, WEB), to(SITE, WEB)),
        no=(to(SITE, WEB, 81),),
    ),
    # --- Addresses and names
    case(
        "addresses are of those outside alone",
        cilium({}, egress=[{"toCIDR": ["0.0.0.0/0"]}]),
        yes=(to(WEB, SITE), to(WEB, METADATA)),
        no=(to(WEB, API), to(WEB, OPS), to(WEB, THERE)),
    ),
    case(
        "one address is a range of its own",
        cilium({}, egress=[{"toCIDR": ["203.0.113.80"]}]),
        yes=(to(WEB, SITE),),
        no=(to(WEB, DEEP),),
    ),
    case(
        "a set of addresses is without what it excepts",
        cilium({}, egress=[{"toCIDRSet": [{"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}]}]),
        yes=(to(WEB, SITE),),
        no=(to(WEB, METADATA),),
    ),
    case(
        "a name is one that DNS was asked for under Cilium's eyes",
        cilium({}, egress=[ASKS_DNS, {"toFQDNs": [{"matchName": "www.example.org"}]}]),
        yes=(to(WEB, SITE), to(WEB, SITE, 443)),
        no=(to(WEB, NEAR), to(WEB, DEEP), to(WEB, API)),
    ),
    case(
        "a name that Cilium does not read leads nowhere",
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
        "nor does one that may not be asked for",
        cilium({}, egress=[ASKS_DNS, {"toFQDNs": [{"matchPattern": "*.*.example.org"}]}]),
        no=(to(WEB, DEEP),),
    ),
    case(
        "a star is no dot",
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
        "a name comes with ports",
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
        "ports alone are those of everybody",
        cilium({}, egress=[{"toPorts": [{"ports": tcp("80")}]}]),
        yes=(to(WEB, API), to(WEB, OPS), to(WEB, SITE), to(WEB, THERE)),
        no=(to(WEB, SITE, 443), to(WEB, SITE, 80, "UDP")),
    ),
    case(
        "a port is of every protocol where nobody says",
        cilium({}, egress=[{"toPorts": [{"ports": [{"port": "53"}]}]}]),
        yes=(to(WEB, NAMES, 53), to(WEB, NAMES, 53, "UDP"), to(WEB, SITE, 53, "SCTP")),
        no=(to(WEB, NAMES, 54), to(WEB, NAMES, 0, "ICMP")),
    ),
    case(
        "port 0 is every port",
        cilium({}, egress=[{"toPorts": [{"ports": tcp("0")}]}]),
        yes=(to(WEB, SITE, 1), to(WEB, SITE, 65535)),
        no=(to(WEB, SITE, 1, "UDP"),),
    ),
    case(
        "a range has both its ends",
        cilium({}, egress=[{"toPorts": [{"ports": tcp("80", endPort=444)}]}]),
        yes=(to(WEB, SITE, 80), to(WEB, SITE, 444)),
        no=(to(WEB, SITE, 79), to(WEB, SITE, 445)),
    ),
    case(
        "a port's name is the pod's where the connection ends",
        cilium(app("web"), ingress=[{"toPorts": [{"ports": tcp("http")}]}]),
        yes=(to(API, WEB, 8080),),
        no=(to(API, WEB, 80),),
    ),
    case(
        "endpoints and ports of one rule must both be met",
        cilium(
            app("api"),
            ingress=[{"fromEndpoints": [app("web")], "toPorts": [{"ports": tcp("80")}]}],
        ),
        yes=(to(WEB, API),),
        no=(to(WEB, API, 81), to(BARE, API), to(WEB, API, 0, "ICMP")),
    ),
    # --- What is denied: the table of "Deny Policies"
    *(
        case(
            f"of what is allowed, {sentence}",
            cilium(app("web"), ingress=[{"fromEndpoints": [app("api")]}]),
            *([cilium(app("web"), ingressDeny=denied)] if denied else []),
            yes=tuple(ask for ask in (to(API, WEB, 81), to(API, WEB, 80), to(API, WEB, 0, "ICMP"))
                      if ask.port in left),
            no=tuple(ask for ask in (to(API, WEB, 81), to(API, WEB, 80), to(API, WEB, 0, "ICMP"))
                     if ask.port not in left),
        )
        for sentence, denied, left in (
            ("nothing is denied", [], (81, 80, 0)),
            ("a port is denied", [{"toPorts": [{"ports": tcp("80")}]}], (81, 0)),
            ("who asks is denied", [{"fromEndpoints": [app("api")]}], ()),
            ("both are denied", [{"toPorts": [{"ports": tcp("80")}]},
                                 {"fromEndpoints": [app("api")]}], ()),
        )
    ),
    case(
        "what is denied is denied, whichever policy allows it, of whatever kind",
        kubernetes({}, egress=[{}], **OUT),
        cilium({}, egress=[{"toEntities": ["all"]}], egressDeny=[{"toCIDR": ["169.254.0.0/16"]}]),
        yes=(to(WEB, SITE), to(WEB, API)),
        no=(to(WEB, METADATA), to(WEB, METADATA, 53, "UDP")),
    ),
    case(
        "a name that leads to what is denied leads nowhere",
        cilium(
            {},
            egress=[ASKS_DNS, {"toFQDNs": [{"matchName": "trap.example.org"}]}],
            egressDeny=[{"toCIDR": ["169.254.0.0/16"]}],
        ),
        no=(to(WEB, outside("169.254.169.254", "trap.example.org")),),
    ),
    case(
        "addresses that are denied are not those of pods",
        cilium({}, egress=[{"toEndpoints": [{}]}], egressDeny=[{"toCIDR": ["10.0.0.0/8"]}]),
        yes=(to(WEB, API),),
    ),
    case(
        "both kinds add up where both are read",
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
def test_the_recipe_is_judged_as_it_is_published(one: Case, plugin: str) -> None:
    judge = Judge(one.policies, cilium=plugin == "cilium")

    found = [judge.allows(ask) for ask in one.asks]

    told = [f"{a.source.name} to {a.target.name}:{a.port}/{a.protocol}" for a in one.asks]
    assert dict(zip(told, found, strict=True)) == dict(zip(told, one.allowed, strict=True))


def test_dns_may_be_asked_for_the_names_that_a_rule_has() -> None:
    judge = Judge([cilium({}, egress=[ASKS_DNS])], cilium=True)
    ask = to(WEB, NAMES, 53, "UDP")

    assert judge.allows_look_up(ask, "www.example.org")
    assert not judge.allows_look_up(ask, "www.example.com")
    assert not judge.allows_look_up(to(WEB, SITE, 53, "UDP"), "www.example.org")


def test_dns_may_be_asked_for_everything_where_one_rule_does_not_read_it() -> None:
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
        (cilium(ingress=[{"fromEndpoints": [{}], "fromEntities": ["all"]}]), "takes one of them"),
        (cilium(egress=[{"toServices": [{}]}]), "toServices"),
        (cilium(egress=[{"toEntities": ["moon"]}]), "entity: moon"),
        (cilium(egressDeny=[{"toFQDNs": [{"matchName": "a.b"}]}]), "toFQDNs"),
        (cilium(egress=[{"toFQDNs": [{"matchName": "*.b"}]}]), "is a pattern"),
        (cilium(egress=[{"toPorts": [{"ports": [{"port": 80}]}]}]), "is no text"),
        (cilium(egress=[{"toPorts": [{"ports": tcp(*map(str, range(41)))}]}]), "41 ports"),
        (cilium(egress=[{"toPorts": [{"ports": [{"port": "80", "protocol": "HTTP"}]}]}]), "HTTP"),
        (cilium(egress=[{"toPorts": [{"ports": tcp("80"), "rules": {"http": [{}]}}]}]), "http"),
        (cilium(egress=[{"toPorts": [{"ports": tcp("80"), "rules": {"dns": [{}]}}]}]), "port 53"),
        (cilium(ingress=[{"toPorts": [{"ports": tcp("53"), "rules": {"dns": [{}]}}]}]), "egress"),
        (cilium({"matchLabels": {"reserved:host": ""}}, ingress=[{}]), "label: reserved:host"),
        (cilium({"matchLabels": {"io.kubernetes.pod.namespace": "a"}}), "names a namespace"),
        ({"kind": "Service", "metadata": {"namespace": "a"}, "spec": {}}, "kind: Service"),
    ],
)
def test_what_nobody_understands_is_not_judged(policy: Policy, what: str) -> None:
    with pytest.raises(Unjudged, match=what):
        Judge([policy], cilium=True)


def test_an_exception_outside_of_its_block_is_not_judged() -> None:
    judge = Judge(
        [cilium(egress=[{"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["192.0.2.0/24"]}]}])],
        cilium=True,
    )

    with pytest.raises(Unjudged, match="is no part of"):
        judge.allows(to(WEB, SITE))


def test_cilium_alone_knows_its_own_policies() -> None:
    with pytest.raises(Unjudged, match="kind: CiliumNetworkPolicy"):
        Judge([cilium(ingress=[{}])], cilium=False)
