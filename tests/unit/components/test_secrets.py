"""Tests that only Secrets contain the credentials from the stack's encrypted configuration."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.conventions import OWN_SECRETS
from components.settings import SettingsError, from_config, read_stack
from tests.support.graph import SECRET_SIGNATURE, Graph, before, opened, record
from tests.support.stack import VALID, config

REGISTRY = '{"auths": {"registry.example.org": {"auth": "token-2"}}}'


def add_credentials(values: dict[str, Any]) -> None:
    values["secrets"] = {
        "oncall": {"api-key": "token-1"},
        "registry": {".dockerconfigjson": REGISTRY},
    }
    values["pull_secrets"] = ["registry"]
    values["monitoring"] = {"bundled": {"webhook": "https://hooks.example.org/token-3"}}


@pytest.fixture(scope="module")
def graph() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(monkeypatch, config(add_credentials))


def hidden(value: Any) -> Any:
    """Return a value without its secrets."""
    if isinstance(value, dict):
        if SECRET_SIGNATURE in value.values():
            return "hidden"
        return {key: hidden(item) for key, item in value.items()}
    return [hidden(item) for item in value] if isinstance(value, list) else value


def test_no_resource_has_a_credential_in_plain_text(graph: Graph) -> None:
    shown = {
        resource.name: text
        for resource in graph.resources
        if "token-" in (text := json.dumps(hidden(resource.inputs)))
    }
    assert shown == {}


def test_only_secrets_contain_a_credential(graph: Graph) -> None:
    found = {
        (resource.type, resource.inputs["metadata"]["name"])
        for resource in graph.resources
        if "token-" in json.dumps(resource.inputs)
    }
    secret = "kubernetes:core/v1:Secret"
    assert found == {(secret, "oncall"), (secret, "registry"), (secret, "alertmanager-config")}


def test_secrets_have_the_entries_and_types_of_the_settings(graph: Graph) -> None:
    oncall, registry = (graph.one(f"secret-{name}").inputs for name in ("oncall", "registry"))

    assert opened(oncall["stringData"]) == {"api-key": "token-1"}
    assert oncall["type"] == "Opaque"
    assert oncall["metadata"] == {"name": "oncall", "namespace": "slurm"}
    assert opened(registry["stringData"]) == {".dockerconfigjson": REGISTRY}
    assert registry["type"] == "kubernetes.io/dockerconfigjson"


def test_pods_start_after_the_secrets_exist(graph: Graph) -> None:
    for maker in ("controller-slurmctld", "login-sshd", "monitoring-server", "jail-populate"):
        assert {"secret-oncall", "secret-registry"} <= before(graph, maker), maker


def read(folder: Path, **changes: Any) -> object:
    values = {f"slurmstack:{key}": value for key, value in {**VALID, **changes}.items()}
    (folder / "Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": values}))
    return read_stack("lab", folder)


def test_encrypted_credentials_are_accepted_in_a_stack_file(tmp_path: Path) -> None:
    read(
        tmp_path,
        secrets={"oncall": {"api-key": {"secure": "v1:abc"}}},
        monitoring={"bundled": {"webhook": {"secure": "v1:abc"}}},
    )


def test_error_about_a_plain_credential_does_not_show_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, secrets={"oncall": {"api-key": "token-1"}})
    text = str(caught.value)
    assert text.startswith("Pulumi.lab.yaml: slurmstack:secrets.oncall.api-key: expected an encry")
    assert "token-1" not in text


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("namespace", {"secure": "v1:abc"}, "namespace"),
        ("users", [{"name": "ada", "uid": {"secure": "v1:abc"}}], "users[ada].uid"),
        (
            "nodesets",
            [{"name": "cpu", "affinity": {"nodeAffinity": {"secure": "v1:abc"}}}],
            "nodesets[cpu].affinity.nodeAffinity",
        ),
    ],
)
def test_encrypted_value_outside_of_credentials_is_refused(
    key: str, value: object, shown: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, **{key: value})
    assert f"slurmstack:{shown}: is encrypted: expected plain text" in str(caught.value)


@pytest.mark.parametrize("url", ["token-3", "https://hooks.example.org/token 3", "ftp://token-3"])
def test_wrong_webhook_is_refused_and_not_shown(url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, monitoring={"bundled": {"webhook": url}})
    assert "slurmstack:monitoring.bundled.webhook: expected an http or https URL" in str(
        caught.value
    )
    assert "token" not in str(caught.value)


def test_names_of_the_stacks_own_secrets_are_reserved(graph: Graph) -> None:
    created = {
        secret.inputs["metadata"]["name"]
        for secret in graph.of_type("kubernetes:core/v1:Secret")
        if not secret.name.startswith("secret-")
    }
    assert created <= OWN_SECRETS


def test_error_about_a_secret_does_not_show_it() -> None:
    given = config(lambda values: values.update(secrets={"registry": "hunter2-the-password"}))

    with pytest.raises(SettingsError, match=r'slurmstack:secrets.registry: "…": ') as caught:
        from_config(given)
    assert "hunter2" not in str(caught.value)
