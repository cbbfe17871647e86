"""Tests of the login nodes' configuration files, and of their Service."""

from typing import Any

import pytest

from components.settings import Login
from components.slurm.loginconf import login_files
from tests.support.graph import Graph, record
from tests.support.stack import config


def files(**fields: Any) -> dict[str, str]:
    return login_files(Login(**fields))


def sshd(**fields: Any) -> dict[str, str]:
    """Return sshd's options by name."""
    lines = files(**fields)["sshd_config"].splitlines()
    return dict(line.split(maxsplit=1) for line in lines)


def test_sshd_allows_keys_and_forwarding_by_default() -> None:
    assert files().keys() == {"sshd_config", "state"}
    assert sshd() == {
        "AuthorizedKeysFile": "/mnt/jail/%h/.ssh/authorized_keys",
        "AllowTcpForwarding": "yes",
        "AllowStreamLocalForwarding": "yes",
        "AllowAgentForwarding": "yes",
        "X11Forwarding": "yes",
        "PerSourcePenalties": "yes",
    }


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"home_keys": False}, {"AuthorizedKeysFile": "none"}),
        (
            {"forwarding": {"tcp": False}},
            {"AllowTcpForwarding": "no", "AllowStreamLocalForwarding": "no"},
        ),
        ({"forwarding": {"agent": False}}, {"AllowAgentForwarding": "no"}),
        ({"forwarding": {"x11": False}}, {"X11Forwarding": "no"}),
        # With the Service types NodePort and ClusterIP, all clients can have the same address, so a
        # penalty would lock out all of them.
        ({"service": "NodePort"}, {"PerSourcePenalties": "no"}),
        ({"service": "ClusterIP"}, {"PerSourcePenalties": "no"}),
    ],
)
def test_each_setting_changes_only_its_sshd_options(
    fields: dict[str, Any], changed: dict[str, str]
) -> None:
    assert sshd(**fields) == {**sshd(), **changed}


@pytest.mark.parametrize(
    ("limits", "lines"),
    [
        ({"cpus": 0.5}, {"cpu_quota=50000"}),
        ({"cpus": 2}, {"cpu_quota=200000"}),
        ({"memory": "8GiB"}, {"memory=8589934592"}),
        ({"processes": 500}, {"processes=500"}),
        ({"cpus": 1, "processes": 16}, {"cpu_quota=100000", "processes=16"}),
    ],
)
def test_limits_are_written_in_the_units_of_the_kernel(
    limits: dict[str, Any], lines: set[str]
) -> None:
    assert set(files(limits=limits)["limits"].splitlines()) == lines


def test_message_of_the_day_keeps_the_text_of_the_operator() -> None:
    assert files(motd={"text": "Maintenance\non Friday.\n"})["motd"] == "Maintenance\non Friday.\n"
    assert "state" not in files(motd={"state": False})


# --- The Service ----------------------------------------------------------------------------------


def with_login(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> Graph:
    existing = {"kind": "existing"}
    return record(monkeypatch, config(lambda v: v.update(cluster=existing, login=fields)))


def service(graph: Graph) -> dict[str, Any]:
    spec: dict[str, Any] = graph.one("login-service").inputs["spec"]
    return spec


def test_load_balancer_keeps_and_filters_client_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = service(with_login(monkeypatch, source_ranges=["198.51.100.0/24", "192.0.2.0/24"]))

    assert spec["type"] == "LoadBalancer"
    assert spec["externalTrafficPolicy"] == "Local"
    assert spec["loadBalancerSourceRanges"] == ["192.0.2.0/24", "198.51.100.0/24"]


def test_node_port_is_open_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = service(with_login(monkeypatch, service="NodePort", node_port=32222))

    assert spec["ports"][0]["nodePort"] == 32222
    assert "externalTrafficPolicy" not in spec


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort", "ClusterIP"])
def test_sessions_of_one_client_reach_the_same_login_node(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert service(with_login(monkeypatch, service=kind))["sessionAffinity"] == "ClientIP"


def test_login_nodes_share_one_host_key(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = with_login(monkeypatch, replicas=3)

    spec = graph.one("login-sshd").inputs["spec"]
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    assert spec["replicas"] == 3
    assert volumes["host-key"]["secret"]["secretName"] == "login-host-key"
