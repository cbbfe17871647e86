"""Tests of the outputs that a stack exports."""

import json
from typing import Any

import pytest

from tests.support.clouds import EKS, METAL
from tests.support.graph import LOAD_BALANCER, NODE_PORT, SECRET_SIGNATURE, opened, record
from tests.support.stack import VALID, config


def outputs(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], **changes: Any) -> Any:
    return record(monkeypatch, config(base={**values, **changes})).outputs


def test_outputs_contain_names_and_addresses_of_a_local_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = outputs(monkeypatch, VALID)

    assert found["cluster_name"] == "test"
    assert found["namespace"] == "slurm"
    assert found["nodesets"] == {"cpu": 2, "big": 1}
    assert (found["login_address"], found["login_port"]) == ("127.0.0.1", 12222)
    assert found["rest_url"] == "http://rest.slurm.svc:6820"
    assert found["prometheus_url"] == "http://monitoring.slurm.svc:9345"
    assert "grafana_url" not in found


def test_login_address_of_a_metal_stack_is_a_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login = {"service": "NodePort", "node_port": 30022}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"metal:ssh_key": "a key"}))
    found = outputs(monkeypatch, METAL, login=login)

    assert (found["login_address"], found["login_port"]) == ("192.0.2.10", 30022)


@pytest.mark.parametrize(
    ("service", "address", "port"),
    [("LoadBalancer", LOAD_BALANCER, 22), ("NodePort", None, NODE_PORT), ("ClusterIP", None, 22)],
)
def test_outputs_name_the_port_that_users_reach(
    monkeypatch: pytest.MonkeyPatch, service: str, address: str | None, port: int
) -> None:
    found = outputs(monkeypatch, VALID, cluster={"kind": "existing"}, login={"service": service})
    assert (found.get("login_address"), found["login_port"]) == (address, port)


def test_kubeconfig_of_a_cloud_is_a_secret_output(monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = outputs(monkeypatch, EKS)["kubeconfig"]

    assert SECRET_SIGNATURE in kubeconfig.values()
    assert opened(kubeconfig)


def test_stack_without_prometheus_has_no_monitoring_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    found = outputs(monkeypatch, VALID, monitoring={"kind": "none"})
    assert not {"prometheus_url", "alertmanager_url", "grafana_url"} & found.keys()
