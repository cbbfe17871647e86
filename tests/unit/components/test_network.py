"""Tests of the guard: it sets a packet filter in user pods, and no other container may change this
filter."""

from collections.abc import Iterator
from typing import Any

import pytest

from components.network import flows
from tests.support.graph import Graph, record, templates
from tests.support.stack import config

Spec = dict[str, Any]


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        refused = {"refuse": ["10.9.0.0/16"]}
        yield record(monkeypatch, config(lambda values: values.update(network=refused)))


def containers(spec: Spec) -> list[Spec]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def capabilities(container: Spec) -> list[str]:
    return list(container["securityContext"]["capabilities"].get("add", ()))


def test_guard_is_the_first_container_of_user_pods(graph: Graph) -> None:
    guarded = {
        name: [container["name"] for container in containers(template["spec"])].index("guard")
        for name, template in templates(graph).items()
        if "guard" in str(template["spec"])
    }

    assert guarded == {"login-sshd": 0, "nodeset-cpu-slurmd": 0, "nodeset-big-slurmd": 0}


def test_only_the_guard_may_change_the_packet_filter_of_pods(graph: Graph) -> None:
    for name, template in templates(graph).items():
        spec = template["spec"]
        # Only node-exporter runs in the host network. It reads traffic counters there, and has no
        # right to change the packet filter.
        assert not spec.get("hostNetwork") or name == "machines-exporter", name
        for container in containers(spec):
            rights = capabilities(container)
            if container["name"] == "guard":
                assert rights == ["NET_ADMIN"], name
                assert container["securityContext"]["runAsNonRoot"]
                assert "restartPolicy" not in container, "the guard must end before others start"
            else:
                assert not {"NET_ADMIN", "NET_RAW", "SYS_MODULE"} & set(rights), name


def test_settings_may_disable_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = record(monkeypatch, config(lambda values: values.update(network={"guard": False})))

    assert "guard" not in str([template["spec"] for template in templates(graph).values()])


def test_guard_gets_the_refused_addresses_and_ports(graph: Graph) -> None:
    guard, *_ = templates(graph)["login-sshd"]["spec"]["initContainers"]
    variables = {one["name"]: one["value"].split() for one in guard["env"]}

    assert {*flows.METADATA, "10.9.0.0/16"} == set(variables["REFUSED_ADDRESSES"])
    assert variables["API_SERVER"] == ["kubernetes.default.svc.cluster.local"]
    ports = {"988", "2049", "9341", "9343", "9344", "9348", "9349", "10250", "10255"}
    assert ports <= set(variables["REFUSED_PORTS"])
