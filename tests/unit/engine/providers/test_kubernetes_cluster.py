"""The provider's settings select a cluster. If they select no cluster, an error says why."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.errors import EngineError
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.cluster import (
    Cluster,
    find_cluster,
    is_loopback,
    read_settings,
    unreachable,
)
from engine.values import UNKNOWN, Properties


def kubeconfig(server: str = "https://127.0.0.1:16443", **context: Any) -> dict[str, Any]:
    return {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", **context}},
            {"name": "two", "context": {"cluster": "c", "namespace": "other"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"client-key": "keys/me"}}],
    }


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def found(**config: Any) -> Cluster:
    return find_cluster(read_settings(config))


def test_kubeconfig_path_is_relative_to_the_project(tmp_path: Path) -> None:
    (tmp_path / ".local").mkdir()
    (tmp_path / ".local" / "kubeconfig").write_text(yaml.safe_dump(kubeconfig()))
    cluster = found(kubeconfig=".local/kubeconfig")
    assert cluster.server == "https://127.0.0.1:16443"
    assert cluster.namespace == "default"
    assert cluster.document is not None
    key = cluster.document["users"][0]["user"]["client-key"]
    assert key == str(tmp_path / ".local" / "keys" / "me"), (
        "the path must be relative to the kubeconfig's folder"
    )


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump], ids=["JSON", "YAML"])
def test_kubeconfig_setting_may_be_the_content_instead_of_a_path(dump: Any) -> None:
    assert found(kubeconfig=dump(kubeconfig())).server == "https://127.0.0.1:16443"


def test_provider_config_can_set_context_and_namespace() -> None:
    text = json.dumps(kubeconfig(namespace="first"))
    assert found(kubeconfig=text).namespace == "first"
    assert found(kubeconfig=text, context="two").namespace == "other"
    assert found(kubeconfig=text, context="two", namespace="mine").namespace == "mine"


def test_kubeconfig_variable_may_list_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text(yaml.safe_dump({"current-context": "two"}))
    (tmp_path / "b").write_text(yaml.safe_dump(kubeconfig()))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/missing:{tmp_path}/b")
    assert found().namespace == "other"


def test_provider_in_a_pod_uses_the_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert found().server == "https://10.0.0.1:443"


REFUSED: list[tuple[Properties, str]] = [
    ({"kubeconfig": ".local/dev/kubeconfig"}, ".local/dev/kubeconfig does not exist"),
    ({"kubeconfig": "a: [\nb"}, "is not valid YAML at line"),
    (
        {"kubeconfig": json.dumps(kubeconfig()), "context": "x"},
        "context: x: the provider's kubeconfig has no such context (found: one, two); set the",
    ),
    ({"kubeconfig": "{}"}, "the provider's kubeconfig has no current context (found: none)"),
    ({}, "no kubeconfig found; set the provider's key `kubeconfig` or"),
    ({"strictMode": True, "kubeconfig": "{}"}, "context: is required with strictMode"),
    ({"enableServerSideApply": False}, "enableServerSideApply: false"),
    ({"enableConfigMapMutable": "maybe"}, "enableConfigMapMutable: 'maybe': expected true"),
    ({"renderYamlToDirectory": "out"}, "renderYamlToDirectory"),
    ({"namespace": 1}, "namespace: 1: expected text"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED, ids=[r[1] for r in REFUSED])
def test_config_without_a_valid_cluster_is_refused_in_one_line(
    config: Properties, message: str
) -> None:
    with pytest.raises(EngineError) as error:
        find_cluster(read_settings(config))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["token: [hush\nx", "- hush\n- x", '[{"token": "hush"}]'])
def test_error_never_shows_content_of_the_kubeconfig(text: str) -> None:
    with pytest.raises(EngineError) as error:
        found(kubeconfig=text)
    assert "hush" not in str(error.value)


def test_error_names_a_missing_file_of_the_kubeconfig_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/does/not/exist")
    with pytest.raises(EngineError, match="KUBECONFIG: /does/not/exist does not exist"):
        found()


def test_cluster_with_an_unknown_kubeconfig_is_unknown() -> None:
    assert not read_settings({"kubeconfig": UNKNOWN}).known
    assert read_settings({"kubeconfig": "x", "namespace": UNKNOWN}).known


def test_environment_variables_can_set_flags_of_the_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
    monkeypatch.setenv("PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE", "true")
    assert read_settings({}).delete_unreachable
    assert read_settings({}).config_map_mutable
    assert not read_settings({"deleteUnreachable": "false"}).delete_unreachable


@pytest.mark.parametrize(
    ("server", "local"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://[::1]:6443", True),
        ("https://localhost", True),
        ("https://10.0.0.1", False),
        ("https://example.org", False),
    ],
)
def test_loopback_addresses_are_recognized(server: str, local: bool) -> None:
    assert is_loopback(server) is local


def test_provider_does_not_check_reachability_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    remote = found(kubeconfig=json.dumps(kubeconfig("https://203.0.113.1:6443")))
    assert remote.proxied
    assert unreachable(remote) is None
    assert not found(kubeconfig=json.dumps(kubeconfig())).proxied


def test_error_about_a_missing_certificate_names_the_kubeconfig(tmp_path: Path) -> None:
    document = kubeconfig()
    document["clusters"][0]["cluster"]["certificate-authority"] = "missing.crt"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(document))

    with pytest.raises(EngineError, match="missing") as error:
        Api(found(kubeconfig=str(file)))

    assert f"kubeconfig: {file}: " in str(error.value)
    assert "correct this kubeconfig" in str(error.value)


def test_error_about_a_missing_service_account_suggests_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(EngineError, match=r"this pod's service account: .*; mount the token"):
        Api(found())
