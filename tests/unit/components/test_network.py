"""Who may talk to whom, by what NetworkPolicies mean, and who has a right to a packet filter."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from components import network, pods
from tests.unit.components.graph import Graph, record, templates
from tests.unit.components.stack import config

Spec = dict[str, Any]
NAMESPACE = "slurm"


@dataclass(frozen=True)
class End:
    """Where a connection begins or ends: one of our pods, another's, or an address outside."""

    labels: tuple[tuple[str, str], ...] = ()
    namespace: str = ""
    address: str = "192.0.2.1"

    @property
    def is_ours(self) -> bool:
        return self.namespace == NAMESPACE


def foreign_pod(namespace: str = "another") -> End:
    labels = {"app.kubernetes.io/name": "slurmstack", "slurmstack.dev/component": "worker"}
    return End(tuple(labels.items()), namespace)


def pod_of(component: str) -> End:
    """A pod of ours, whether the graph has one or not."""
    return End(tuple(pods.labels(component).items()), NAMESPACE, "10.244.0.1")


# --- NetworkPolicies, as networking.k8s.io/v1 describes them -------------------------------------


def selects(selector: Spec, labels: dict[str, str]) -> bool:
    def holds(expression: Spec) -> bool:
        assert expression["operator"] == "In"
        return labels.get(expression["key"]) in expression["values"]

    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        map(holds, selector.get("matchExpressions", ()))
    )


def is_peer(peer: Spec, end: End) -> bool:
    if "ipBlock" in peer:
        assert set(peer) == {"ipBlock"}
        block, address = peer["ipBlock"], ip_address(end.address)
        inside = address in ip_network(block["cidr"])
        return inside and not any(address in ip_network(cidr) for cidr in block.get("except", ()))
    if "namespaceSelector" in peer:
        assert set(peer) == {"namespaceSelector"}
        return selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": end.namespace})
    assert set(peer) == {"podSelector"}, "pods of the policy's own namespace"
    return end.is_ours and selects(peer["podSelector"], dict(end.labels))


def is_port(ports: list[Spec] | None, protocol: str, port: int) -> bool:
    return ports is None or {"protocol": protocol, "port": port} in ports


@dataclass(frozen=True)
class Policies:
    specs: tuple[Spec, ...]

    def allow(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Whether a connection is let out of where it begins, and in where it ends."""
        return self._allow("egress", source, target, port, protocol) and self._allow(
            "ingress", target, source, port, protocol
        )

    def _allow(self, direction: str, of: End, other: End, port: int, protocol: str) -> bool:
        """Of all policies that concern an end, one has to allow it; with none, all is allowed."""
        concerned = [
            spec
            for spec in self.specs
            if of.is_ours
            and direction.title() in spec["policyTypes"]
            and selects(spec["podSelector"], dict(of.labels))
        ]
        peers = {"egress": "to", "ingress": "from"}[direction]
        rules = [rule for spec in concerned for rule in spec.get(direction, ())]
        return not concerned or any(
            is_port(rule.get("ports"), protocol, port)
            and (peers not in rule or any(is_peer(peer, other) for peer in rule[peers]))
            for rule in rules
        )


# --- Ours ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield record(
            monkeypatch,
            config(
                lambda values: values.update(
                    network={"refuse": ["10.9.0.0/16"]},
                    monitoring={"logs": {"endpoint": "http://collector:4318"}},
                )
            ),
        )


@pytest.fixture(scope="module")
def policies(graph: Graph) -> Policies:
    found = graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    assert {one.inputs["metadata"]["namespace"] for one in found} == {NAMESPACE}
    return Policies(tuple(one.inputs["spec"] for one in found))


@pytest.fixture(scope="module")
def ours(graph: Graph) -> dict[str, End]:
    """The graph's pods by short names; all have addresses that could be anybody's."""
    return {
        name.removesuffix("-slurmd").removesuffix("-pod"): End(
            tuple(template["metadata"]["labels"].items()), NAMESPACE, "10.244.0.1"
        )
        for name, template in templates(graph).items()
    }


CONTROLLER, LOGIN, REST = "controller-slurmctld", "login-sshd", "rest-slurmrestd"
ACCOUNTING, DATABASE = "accounting-slurmdbd", "database-mariadb"
WORKERS = ("nodeset-cpu", "nodeset-big")
USERS = (LOGIN, *WORKERS)
ACCOUNTS = "accounts-apply"
EXPORTER = "exporter-agent"
ASKS_SLURMCTLD = {*(*USERS, ACCOUNTS, EXPORTER, REST, "config-check", "controller-config-in-force")}
SOME_PORT = 40_000
SCRAPED = {"exporter": 9341, "logs": 9348, "longchecks": 9344, "reconciler": 9343}
RECONCILER = ("reconciler-agent", "reconciler-after-deploy")
MONITORING = "monitoring-server"
LOGS = "logs-agent"


@pytest.mark.parametrize(
    ("target", "port", "allowed"),
    [
        (CONTROLLER, 6817, {ACCOUNTING, *ASKS_SLURMCTLD}),
        (ACCOUNTING, 6819, {ACCOUNTS, CONTROLLER, REST, *USERS}),
        (ACCOUNTING, SOME_PORT, set()),
        (DATABASE, 3306, {ACCOUNTING, "backup-dump"}),
        (DATABASE, SOME_PORT, set()),
        (CONTROLLER, SOME_PORT, set()),
        (REST, 6820, {*USERS, *RECONCILER}),
        (REST, SOME_PORT, set()),
        *((worker, 6818, {CONTROLLER, *USERS}) for worker in WORKERS),
        *((worker, SOME_PORT, {CONTROLLER, *USERS}) for worker in WORKERS),
        (LOGIN, 6818, {CONTROLLER, *USERS}),
        (LOGIN, SOME_PORT, {CONTROLLER, *USERS}),
        *(
            (quiet, SOME_PORT, set())
            for quiet in (*RECONCILER, "controller-placeholder", "backup-dump")
        ),
        (EXPORTER, 9341, {MONITORING}),
        (EXPORTER, SOME_PORT, set()),
        (LOGS, 9348, {MONITORING}),
        (LOGS, SOME_PORT, set()),
        *((reconciler, 9343, {MONITORING}) for reconciler in RECONCILER),
        *((MONITORING, port, set()) for port in (9345, 9346, SOME_PORT)),
        *(
            (job, SOME_PORT, set())
            for job in ("jail-populate", "jail-homes", "config-check", ACCOUNTS)
        ),
    ],
)
def test_only_who_must_talks_to_a_pod(
    policies: Policies, ours: dict[str, End], target: str, port: int, allowed: set[str]
) -> None:
    found = {name for name, pod in ours.items() if policies.allow(pod, ours[target], port)}

    assert found == allowed


def test_nodes_talk_to_each_other_by_every_protocol(
    policies: Policies, ours: dict[str, End]
) -> None:
    for source in USERS:
        for target in USERS:
            assert policies.allow(ours[source], ours[target], SOME_PORT, "UDP")


@pytest.mark.parametrize("stranger", [foreign_pod(), End()], ids=["another's pod", "an address"])
def test_a_stranger_gets_to_sshd_and_to_nothing_else(
    policies: Policies, ours: dict[str, End], stranger: End
) -> None:
    ports = (22, 2222, 3306, 6817, 6818, 6819, 6820, *SCRAPED.values(), SOME_PORT)
    found = {
        (name, port) for name, pod in ours.items() for port in ports
        if policies.allow(stranger, pod, port)
    }  # fmt: skip

    assert found == {(LOGIN, 2222)}


@pytest.mark.parametrize(
    "prometheus", [foreign_pod("monitoring"), pod_of("monitoring")], ids=["another's", "ours"]
)
def test_who_scrapes_gets_to_metrics_alone(
    policies: Policies, ours: dict[str, End], prometheus: End
) -> None:
    ends = {**ours, "longchecks-desk": pod_of("longchecks"), "longcheck": pod_of("longcheck")}
    ports = (6817, 6819, 6820, *SCRAPED.values(), SOME_PORT)
    found = {
        (name, port) for name, pod in ends.items() for port in ports
        if policies.allow(prometheus, pod, port)
    }  # fmt: skip

    assert found == {
        (EXPORTER, 9341),
        *((reconciler, 9343) for reconciler in RECONCILER),
        ("longchecks-desk", 9344),
        (LOGS, 9348),
    }


def test_nobody_scrapes_whom_the_settings_do_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(
        monkeypatch, config(lambda values: values.update(monitoring={"scrape_from": []}))
    )
    found = graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    policies = Policies(tuple(one.inputs["spec"] for one in found))

    for component, port in SCRAPED.items():
        assert not policies.allow(foreign_pod("monitoring"), pod_of(component), port)
        assert policies.allow(pod_of("monitoring"), pod_of(component), port)


@pytest.mark.parametrize(
    ("address", "port", "allowed"),
    [
        ("151.101.0.223", 80, set(USERS)),
        ("2a04:4e42::223", 80, set(USERS)),
        ("10.8.0.1", 80, set(USERS)),
        ("10.9.0.1", 80, set()),
        # Kubernetes' API may be anywhere.
        ("10.9.0.1", 443, {*RECONCILER, LOGS, MONITORING}),
        ("10.9.0.1", 6443, {*RECONCILER, LOGS, MONITORING}),
        ("10.9.0.1", 4318, {LOGS}),
        *((str(ip_network(cidr)[-1]), 80, set()) for cidr in network.METADATA),
        ("169.254.169.254", 80, set()),
        ("fd00:ec2::254", 80, set()),
    ],
)
def test_users_alone_reach_the_world_but_for_what_is_refused(
    policies: Policies, ours: dict[str, End], address: str, port: int, allowed: set[str]
) -> None:
    outside = End(address=address)

    assert {name for name, pod in ours.items() if policies.allow(pod, outside, port)} == allowed


@pytest.mark.parametrize("server", ["10.96.0.10", "169.254.20.10", "fd00:ec2::253"])
@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_who_looks_for_others_may_ask_for_names_wherever_these_are_known(
    policies: Policies, ours: dict[str, End], server: str, protocol: str
) -> None:
    dns = End(address=server)

    found = {name for name, pod in ours.items() if policies.allow(pod, dns, 53, protocol)}

    assert found == {
        *(ACCOUNTING, CONTROLLER, "backup-dump", LOGS, MONITORING, *RECONCILER),
        *ASKS_SLURMCTLD,
    }


def test_every_pod_is_under_a_policy(graph: Graph, policies: Policies) -> None:
    for name, template in templates(graph).items():
        labels = template["metadata"]["labels"]
        assert any(selects(spec["podSelector"], labels) for spec in policies.specs), name


def test_policies_leave_pods_of_others_alone(policies: Policies) -> None:
    for spec in policies.specs:
        assert not selects(spec["podSelector"], {"app.kubernetes.io/name": "another"})


# --- The guard -----------------------------------------------------------------------------------


def containers(spec: Spec) -> list[Spec]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def capabilities(container: Spec) -> list[str]:
    return list(container["securityContext"]["capabilities"].get("add", ()))


def test_the_guard_comes_before_all_else_where_users_are(graph: Graph) -> None:
    guarded = {
        name: [container["name"] for container in containers(template["spec"])].index("guard")
        for name, template in templates(graph).items()
        if "guard" in str(template["spec"])
    }

    assert guarded == {"login-sshd": 0, "nodeset-cpu-slurmd": 0, "nodeset-big-slurmd": 0}


def test_nobody_but_the_guard_has_a_right_to_the_packet_filter(graph: Graph) -> None:
    for name, template in templates(graph).items():
        spec = template["spec"]
        # Who is in the machine's own network counts what goes through it, and may do nothing.
        assert not spec.get("hostNetwork") or name == "machines-exporter", name
        for container in containers(spec):
            rights = capabilities(container)
            if container["name"] == "guard":
                assert rights == ["NET_ADMIN"], name
                assert container["securityContext"]["runAsNonRoot"]
                assert "restartPolicy" not in container, "it ends before the others begin"
            else:
                assert not {"NET_ADMIN", "NET_RAW", "SYS_MODULE"} & set(rights), name


def test_no_guard_where_the_settings_leave_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(network={"guard": False})))

    assert "guard" not in str([template["spec"] for template in templates(graph).values()])


def test_the_guard_is_told_what_the_settings_refuse(graph: Graph) -> None:
    guard, *_ = templates(graph)["login-sshd"]["spec"]["initContainers"]
    told = {one["name"]: one["value"].split() for one in guard["env"]}

    assert {*network.METADATA, "10.9.0.0/16"} == set(told["REFUSED_ADDRESSES"])
    assert told["API_SERVER"] == ["kubernetes.default.svc.cluster.local"]
    ports = {"9341", "9343", "9344", "9348", "10250", "10255"}
    assert ports <= set(told["REFUSED_PORTS"])
