"""Tests of which kubeconfig a stack on an existing cluster uses."""

from pathlib import Path

import pulumi
import pytest

from tests.support.graph import record
from tests.support.stack import config

EXISTING = {"kind": "existing"}


def kubeconfig(monkeypatch: pytest.MonkeyPatch) -> str:
    graph = record(monkeypatch, config(lambda values: values.update(cluster=EXISTING)))
    (provider,) = graph.of_type("pulumi:providers:kubernetes")
    return str(provider.inputs["kubeconfig"])


@pytest.mark.parametrize("empty", [None, ""])
def test_kubeconfig_of_the_user_is_the_default(
    empty: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if empty is None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
    else:
        monkeypatch.setenv("KUBECONFIG", empty)

    assert kubeconfig(monkeypatch) == str(Path.home() / ".kube/config")


def test_environment_chooses_another_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/srv/lab.yaml")

    assert kubeconfig(monkeypatch) == "/srv/lab.yaml"


def test_list_of_kubeconfigs_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/srv/lab.yaml:/srv/other.yaml")

    with pytest.raises(pulumi.RunError, match="expected a single file") as refused:
        kubeconfig(monkeypatch)
    assert "\n" not in str(refused.value)
