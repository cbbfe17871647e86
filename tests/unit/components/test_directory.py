"""Tests of sssd's configuration, and of the pods with an sssd sidecar."""

import configparser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.identity.directory import sssd_conf
from components.settings import Directory
from local.paths import ROOT
from tests.support.graph import Graph, record
from tests.support.stack import config

ASKED: dict[str, Any] = {"uris": ["ldaps://ldap.example.org"], "base": "dc=example,dc=org"}
WITH_SSSD = {
    *(
        "accounts-apply",
        "accounting-slurmdbd",
        "controller-slurmctld",
        "exporter-agent",
        "login-sshd",
        "rest-slurmrestd",
    ),
    *("nodeset-cpu-slurmd", "nodeset-big-slurmd"),
}


def domain_options(**fields: Any) -> dict[str, str]:
    """Return the options of the domain in sssd.conf."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(sssd_conf(Directory.model_validate({**ASKED, **fields})))
    assert parser.sections() == ["sssd", "domain/directory"], (
        "the pod appends the password, so the section must be the last"
    )
    return dict(parser["domain/directory"])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"uris": ["ldaps://a", "ldap://b:3389"]}, {"ldap_uri": "ldaps://a, ldap://b:3389"}),
        ({"ca": "lab.pem"}, {"ldap_tls_cacert": "/etc/slurmstack/directory/ca.pem"}),
        ({"kind": "ad"}, {"ldap_schema": "ad"}),
        (
            {"bind_dn": "cn=reader", "password_secret": "reader"},
            {"ldap_default_bind_dn": "cn=reader"},
        ),
        ({"key_attribute": "sshKey"}, {"ldap_user_ssh_public_key": "sshKey"}),
        (
            {"user_filter": "(a=b)"},
            {
                "ldap_user_search_base": "dc=example,dc=org?subtree?"
                "(&(a=b)(!(|"
                + "".join(f"(uidNumber={number})" for number in range(64030, 64037))
                + ")))"
            },
        ),
    ],
)
def test_each_setting_changes_only_its_sssd_options(
    fields: dict[str, Any], expected: dict[str, str]
) -> None:
    assert domain_options(**fields) == {**domain_options(), **expected}


def test_sssd_queries_the_directory_only_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in ("ldap://ldap.example.org", "ldaps://ldap.example.org"):
        options = domain_options(uris=[uri])
        assert options["ldap_id_use_start_tls"] == "true"
        assert options["ldap_tls_reqcert"] == "demand"


# --- The pods ------------------------------------------------------------------------------------


Recorded = Callable[..., Graph]


@pytest.fixture
def graph_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorded:
    (tmp_path / "__main__.py").symlink_to(ROOT / "__main__.py")
    (tmp_path / "lab.pem").write_text("a certificate")

    def graph(**fields: Any) -> Graph:
        edited = config(lambda values: values.update(directory={**ASKED, **fields}))
        return record(monkeypatch, edited, tmp_path)

    return graph


def pods(graph: Graph) -> dict[str, dict[str, Any]]:
    return {
        resource.name: resource.inputs["spec"]["template"]["spec"]
        for resource in graph.resources
        if "template" in resource.inputs.get("spec", {})
    }


def test_pods_that_resolve_users_have_an_sssd_sidecar(graph_with: Recorded) -> None:
    found = pods(graph_with())

    with_sidecar = {
        name
        for name, spec in found.items()
        if any(one["name"] == "sssd" for one in spec.get("initContainers", ()))
    }
    assert with_sidecar == WITH_SSSD
    for name in WITH_SSSD:
        mounts = [mount for one in found[name]["containers"] for mount in one["volumeMounts"]]
        pipes = [mount for mount in mounts if mount["name"] == "sss"]
        assert pipes, name
        assert all(mount["readOnly"] and mount["subPath"] == "pipes" for mount in pipes), name


def test_sssd_has_no_capabilities(graph_with: Recorded) -> None:
    for name in WITH_SSSD:
        (sssd,) = [
            one for one in pods(graph_with())[name]["initContainers"] if one["name"] == "sssd"
        ]
        assert sssd["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert sssd["securityContext"]["allowPrivilegeEscalation"] is False


def test_network_policies_allow_sssd_to_reach_the_directory(graph_with: Recorded) -> None:
    graph = graph_with(uris=["ldaps://a.example.org", "ldap://b.example.org:3389"])

    asking = {
        one.inputs["metadata"]["name"]
        for one in graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        for rule in one.inputs["spec"].get("egress", ())
        if {"protocol": "TCP", "port": 636} in rule.get("ports", ())
        and {"protocol": "TCP", "port": 3389} in rule["ports"]
        and "to" not in rule
    }
    assert asking == {
        *("accounting", "accounts", "controller", "exporter", "login", "rest", "worker")
    }


def test_bind_password_is_only_in_its_secret(graph_with: Recorded) -> None:
    graph = graph_with(bind_dn="cn=reader", password_secret="reader", ca="lab.pem")

    volumes = {one["name"]: one for one in pods(graph)["login-sshd"]["volumes"]}
    assert volumes["sss-password"]["secret"]["secretName"] == "reader"
    data = graph.one("directory-config").inputs["data"]
    assert data.keys() == {"sssd.conf", "ca.pem"}
    assert data["ca.pem"] == "a certificate"
    assert "authtok" not in data["sssd.conf"]
