"""Tests of the rendered policies: for all pods and ports, they allow exactly the connections that
intended.yaml lists."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_network
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from components import conventions as c
from components import pods
from components.network import ciliumpolicies, flows, policies
from tests.support.graph import Graph, record, templates
from tests.support.stack import config, enable_everything, settings
from tests.unit.network.judge import Connection, End, Judge, machine, outside

Values = dict[str, Any]
Rows = Mapping[str, Mapping[str, list[Any]]]
Allowed = set[tuple[str, str, str]]
"""Allowed connections: source, target and port."""

NAMESPACE = "slurm"
INTENDED = yaml.safe_load(Path(__file__).with_name("intended.yaml").read_text())
GROUPS = INTENDED["groups"]


# --- Sources and targets -------------------------------------------------------------------------

OURS = pods.labels("worker")
"""Labels of the stack's pods. Pods in other namespaces may have the same labels. These labels must
not give such pods more access."""
OUTSIDERS = {
    "world": outside("151.101.0.223"),
    "neighbour": End("neighbour", namespace="another", labels=OURS, machine="node-1"),
    "prometheus": End("prometheus", namespace="monitoring", machine="node-1"),
    "machine": machine("node-1", "10.0.0.1"),
}
"""Sources outside the stack."""
OTHERS: Mapping[str, tuple[End, ...]] = {
    "world": (OUTSIDERS["world"], outside("2a04:4e42::223"), outside("10.8.0.1")),
    "refused": (outside("10.9.0.1"), outside("10.9.255.254")),
    "metadata": (
        *(outside(str(ip_network(cidr)[-1]), "trap.example.org") for cidr in flows.METADATA),
        outside("169.254.169.254"),
        outside("fd00:ec2::254"),
    ),
    "neighbour": (OUTSIDERS["neighbour"],),
    "dns": (
        End("dns", namespace="kube-system", labels={"k8s-app": "kube-dns"}, machine="node-1"),
        End(
            "cache", namespace="kube-system", labels={"k8s-app": "node-local-dns"}, machine="node-1"
        ),
    ),
    "collector": (End("collector", namespace="logging", machine="node-1"),),
    "dcgm": (End("dcgm", namespace="gpu-operator", machine="node-1"),),
    "machine": (OUTSIDERS["machine"],),
    "control-plane": (machine("node-2", "10.0.0.2", api=True),),
    "managed-api": (outside("203.0.113.9", api=True),),
    "store": (outside("203.0.113.90", "dumps.s3.example.org"),),
    "hooks": (outside("203.0.113.44", "hooks.example.org"),),
    "ldap": (outside("203.0.113.36", "ldap.example.org"),),
    "ldap-address": (outside("10.1.2.3"),),
    "package": (outside("203.0.113.61", "files.pypi.org"),),
}
"""Targets outside the stack, by kind."""
OUTSIDE = {name for name, ends in OTHERS.items() if all(end.kind == "outside" for end in ends)}
STORAGE = {f"{port}/{protocol}" for port in flows.STORAGE_PORTS for protocol in ("TCP", "UDP")}
SOME_PORTS = (
    "1/TCP",
    "22/TCP",
    "80/TCP",
    "80/UDP",
    "10250/TCP",
    "40000/TCP",
    "40000/UDP",
    "988/TCP",
    "2049/UDP",
    "0/ICMP",
)
"""Ports that the tests check in addition to those in the tables `ours` and `kubernetes` of
intended.yaml."""


def ports() -> list[str]:
    tables = (*INTENDED["ours"].values(), *INTENDED["kubernetes"].values())
    named = {port for rows in tables for port in rows} - {"any"}
    return sorted({*named, *SOME_PORTS})


PORTS = ports()


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield record(monkeypatch, config(enable_everything))


@pytest.fixture(scope="module")
def ours(graph: Graph) -> list[End]:
    """Return all recorded pods that are not in the host network."""
    return [
        End(name, "pod", NAMESPACE, labels=template["metadata"]["labels"])
        for name, template in templates(graph).items()
        if not template["spec"].get("hostNetwork")
    ]


def objects(graph: Graph, *kinds: str) -> list[Values]:
    found = [one.inputs for one in graph.resources if one.inputs.get("kind") in kinds]
    assert {one["metadata"]["namespace"] for one in found} == {NAMESPACE}
    return found


def component(end: End) -> str:
    return end.labels[c.LABEL_COMPONENT]


# --- Intended and allowed connections -------------------------------------------------------------


def members(names: Iterable[Any]) -> Iterator[str]:
    for name in names:
        if isinstance(name, list):
            yield from members(name)
        elif name in GROUPS:
            yield from members(GROUPS[name])
        else:
            yield name


def intended(rows: Rows) -> Allowed:
    found: Allowed = set()
    for end, row in rows.items():
        for port in PORTS:
            entries = [*row.get("any", ()), *row.get(port, ())]
            kept_out = [name[1:] for name in entries if str(name).startswith("-")]
            let_in = [name for name in entries if not str(name).startswith("-")]
            allowed = set(members(let_in)) - set(members(kept_out))
            found |= {(source, end, port) for source in allowed}
    return found


def found(
    judge: Judge, sources: Iterable[tuple[str, End]], targets: Iterable[tuple[str, End]]
) -> Allowed:
    """Return all connections that the judge allows.

    A connection from a pod to itself stands for a connection between two replicas. If several ends
    have the same name, the judge must decide in the same way for all of them.
    """
    allowed: dict[tuple[str, str, str], set[bool]] = {}
    for (source, begin), (target, end), port in product(sources, list(targets), PORTS):
        number, protocol = port.split("/")
        connection = Connection(begin, end, int(number), protocol)
        allowed.setdefault((source, target, port), set()).add(judge.allows(connection))
    assert [key for key, verdicts in allowed.items() if len(verdicts) > 1] == []
    return {key for key, verdicts in allowed.items() if verdicts == {True}}


def among_ours(judge: Judge, ours: list[End]) -> Allowed:
    pods_of_ours = [(component(end), end) for end in ours]
    return found(judge, [*pods_of_ours, *OUTSIDERS.items()], pods_of_ours)


def to_others(judge: Judge, ours: list[End]) -> Allowed:
    others = [(name, end) for name, ends in OTHERS.items() for end in ends]
    return found(judge, [(component(end), end) for end in ours], others)


KINDS = {
    "NetworkPolicies": (("NetworkPolicy",), False),
    "NetworkPolicies, by Cilium": (("NetworkPolicy",), True),
    "CiliumNetworkPolicies": (("CiliumNetworkPolicy",), True),
    "both": (("NetworkPolicy", "CiliumNetworkPolicy"), True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_accept_only_intended_connections(kind: str, graph: Graph, ours: list[End]) -> None:
    kinds, cilium = KINDS[kind]
    judge = Judge(objects(graph, *kinds), cilium=cilium)

    assert {component(end) for end in ours} == set(INTENDED["ours"])
    wanted = intended(INTENDED["ours"])
    if kind == "NetworkPolicies, by Cilium":
        # Cilium does not match machines by address. So if Cilium reads only NetworkPolicies,
        # machines cannot reach the NFS server.
        wanted -= {("machine", c.JAIL_SERVER, f"{c.NFS_PORT}/TCP")}
    assert among_ours(judge, ours) == wanted


@pytest.mark.parametrize(
    ("kind", "cilium"), [("NetworkPolicy", False), ("CiliumNetworkPolicy", True)]
)
def test_pods_open_only_intended_connections(
    kind: str, cilium: bool, graph: Graph, ours: list[End]
) -> None:
    rows = INTENDED["cilium" if cilium else "kubernetes"]
    assert set(rows) == set(OTHERS)

    assert to_others(Judge(objects(graph, kind), cilium=cilium), ours) == intended(rows)


def test_cilium_combines_both_kinds_of_policies_and_keeps_denials(
    graph: Graph, ours: list[End]
) -> None:
    kinds = ("NetworkPolicy", "CiliumNetworkPolicy")
    each = [to_others(Judge(objects(graph, kind), cilium=True), ours) for kind in kinds]

    together = to_others(Judge(objects(graph, *kinds), cilium=True), ours)

    denied = (
        {one for one in each[0] | each[1] if one[1] == "metadata"}
        | {
            (source, "managed-api", port)
            for source in members(["users"])
            for port in ("443/TCP", "6443/TCP")
        }
        | {one for one in each[0] if one[1] in OUTSIDE and one[2] in STORAGE}
    )
    assert together == (each[0] | each[1]) - denied


def rendered(edit: Callable[[Values], object], kind: str) -> list[Values]:
    """Return the policies of the complete stack after an edit."""

    def edited(values: Values) -> None:
        enable_everything(values)
        edit(values)

    rules = flows.rules(settings(edited))
    module = ciliumpolicies if kind == "CiliumNetworkPolicy" else policies
    return [
        {"kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        for name, spec in module.policies(rules).items()
    ]


def test_dns_names_in_the_settings_limit_what_users_reach(
    ours: list[End],
) -> None:
    named = {"policies": "cilium", "names": ["*.pypi.org", "trap.example.org"]}
    made = rendered(lambda values: values["network"].update(named), "CiliumNetworkPolicy")
    judge = Judge(made, cilium=True)

    assert to_others(judge, ours) == intended({**INTENDED["cilium"], **INTENDED["named"]})
    assert among_ours(judge, ours) == intended(INTENDED["ours"])


def test_empty_list_of_names_blocks_all_external_targets_for_users(ours: list[End]) -> None:
    nothing = {"policies": "cilium", "names": []}
    made = rendered(lambda values: values["network"].update(nothing), "CiliumNetworkPolicy")
    judge = Judge(made, cilium=True)

    reached = {one for one in to_others(judge, ours) if one[0] in ("login", "worker")}
    assert {end for _, end, port in reached if port == "443/TCP"} == set()
    assert ("worker", "ldap", "636/TCP") in reached
    assert ("worker", "dns", "53/UDP") in reached


@pytest.mark.parametrize("kind", ["NetworkPolicy", "CiliumNetworkPolicy"])
def test_only_namespaces_in_scrape_from_may_scrape_metrics(kind: str, ours: list[End]) -> None:
    def edit(values: Values) -> None:
        values["monitoring"]["scrape_from"] = ["observability"]

    judge = Judge(rendered(edit, kind), cilium=kind == "CiliumNetworkPolicy")
    other = End("other", namespace="observability", machine="node-1")
    targets = [(component(end), end) for end in ours]
    scraped = {(name, f"{port}/TCP") for name, port in c.SCRAPED.items()}

    assert found(judge, [("old", OUTSIDERS["prometheus"])], targets) == {
        ("old", "login", "2222/TCP")
    }
    assert found(judge, [("new", other)], targets) == {
        ("new", name, port) for name, port in {*scraped, ("login", "2222/TCP")}
    }


@pytest.mark.parametrize("kind", KINDS)
def test_policies_do_not_affect_pods_outside_the_stack(kind: str, graph: Graph) -> None:
    kinds, cilium = KINDS[kind]
    judge = Judge(objects(graph, *kinds), cilium=cilium)
    stranger = End("stranger", namespace=NAMESPACE, labels={"app.kubernetes.io/name": "another"})

    for end in (end for ends in OTHERS.values() for end in ends):
        assert judge.allows(Connection(stranger, end, 443))
        assert judge.allows(Connection(end, stranger, 443))


SERVERS: dict[str, tuple[End, ...]] = {
    "collector": (End("beside", namespace=NAMESPACE, labels={"app": "collector"}),),
    "loki.logs": (End("a Service", namespace="logs"), outside("203.0.113.1", "loki.logs")),
    "loki.logs.svc": (End("a Service", namespace="logs"),),
    "loki.logs.svc.cluster.local": (End("a Service", namespace="logs"),),
    "loki.example.org": (outside("203.0.113.1", "loki.example.org"),),
    "192.0.2.7": (outside("192.0.2.7"),),
}
"""Ends to which a server's name or address may refer."""


@pytest.mark.parametrize("server", SERVERS)
def test_policies_allow_every_address_that_a_server_name_can_have(
    server: str, ours: list[End]
) -> None:
    def edit(values: Values) -> None:
        values["monitoring"]["logs"]["endpoint"] = f"http://{server}:4318"

    judge = Judge(rendered(edit, "CiliumNetworkPolicy"), cilium=True)
    (sender,) = [end for end in ours if component(end) == c.LOGS]
    all_ends = [end for ends in (*SERVERS.values(), *OTHERS.values()) for end in ends]

    reached = [end for end in all_ends if judge.allows(Connection(sender, end, 4318))]

    assert set(reached) >= set(SERVERS[server])
    expected = {(end.namespace, end.address) for end in SERVERS[server]}
    assert {(end.namespace, end.address) for end in reached} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_reconciler_reaches_the_servers_of_the_command_that_replaces_machines(
    kind: str, ours: list[End]
) -> None:
    def edit(values: Values) -> None:
        command = {"replace": ["it"], "replace_servers": ["https://api.lab:8443"]}
        values["reconciler"] = {**values.get("reconciler", {}), **command}

    kinds, cilium = KINDS[kind]
    judge = Judge([one for each in kinds for one in rendered(edit, each)], cilium=cilium)
    reconciler = next(end for end in ours if component(end) == c.RECONCILER)
    server, stranger = outside("203.0.113.1", "api.lab"), outside("203.0.113.2", "evil.lab")

    assert judge.allows(Connection(reconciler, server, 8443))
    assert not judge.allows(Connection(reconciler, server, 9443))
    # NetworkPolicies cannot check names of servers. So if they exist beside CiliumNetworkPolicies,
    # they also allow connections to other servers.
    assert judge.allows(Connection(reconciler, stranger, 8443)) is ("NetworkPolicy" in kinds)


def test_cilium_reads_dns_queries_only_for_rules_with_names(ours: list[End]) -> None:
    specs = {
        one["metadata"]["name"]: one["spec"]
        for one in rendered(lambda values: None, "CiliumNetworkPolicy")
    }
    read = {name for name, spec in specs.items() if "'dns'" in str(spec)}

    # Only these components have rules with names. The names are those of the directory's servers,
    # the webhook and the log collector.
    assert read == {*members(["directory"]), "monitoring", "logs"}
