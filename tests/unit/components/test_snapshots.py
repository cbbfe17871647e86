"""Tests of which claims snapshots cover, and of the rights of the snapshot pods."""

from typing import Any

import pytest

from tests.support.graph import Graph, container, record, templates
from tests.support.stack import config

SERVER = {"server": {"machines": ["10.0.0.0/16"]}}


def graph_of(monkeypatch: pytest.MonkeyPatch, volume: dict[str, Any], **fields: Any) -> Graph:
    return record(monkeypatch, config(lambda values: values.update(jail=volume, snapshots=fields)))


@pytest.mark.parametrize(
    ("jail", "fields", "claims"),
    [
        ({}, {"jail": "a", "state": "b"}, ["controller-state=b", "jail=a"]),
        ({}, {"state": "b"}, ["controller-state=b"]),
        ({"claim": "labs"}, {"jail": "a"}, ["labs=a"]),
        (SERVER, {"jail": "a"}, ["jail-server=a"]),
    ],
)
def test_snapshots_cover_the_claims_that_contain_the_data(
    monkeypatch: pytest.MonkeyPatch,
    jail: dict[str, Any],
    fields: dict[str, str],
    claims: list[str],
) -> None:
    graph = graph_of(monkeypatch, jail, **fields)

    assert container(graph, "snapshots-take")["args"] == ["agents.snapshots", *claims]
    assert container(graph, "snapshots-check")["args"] == ["agents.snapshots", "--check", *claims]


def test_snapshot_pods_may_only_manage_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(monkeypatch, {}, jail="a")

    (rule,) = graph.one("snapshots-role").inputs["rules"]
    assert rule == {
        "apiGroups": ["snapshot.storage.k8s.io"],
        "resources": ["volumesnapshots"],
        "verbs": ["create", "delete", "list"],
    }
    for name in ("snapshots-take", "snapshots-check"):
        spec = templates(graph)[name]["spec"]
        assert spec["serviceAccountName"] == "snapshots"
        assert container(graph, name)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "volumes" not in spec, "the pod mounts no data"


def test_deploy_fails_at_once_if_snapshots_are_impossible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = graph_of(monkeypatch, {}, jail="a").one("snapshots-check").inputs["spec"]

    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [3]
    (one,) = spec["template"]["spec"]["containers"]
    assert one["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_snapshots_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {one.name for one in record(monkeypatch).resources}

    assert not [name for name in names if "snapshots" in name]
