"""Tests of the log sender's pod and rights. The log sender runs only if the settings name a log
collector."""

from pathlib import Path
from typing import Any, get_args

import pulumi
import pytest

from agents.logs.lines import Severity
from components import conventions as c
from components.settings import Logs
from local.paths import ROOT
from tests.support.graph import Graph, container, environment, pod, record, templates
from tests.support.stack import config

Spec = dict[str, Any]
COLLECTOR = "http://collector.monitoring:4318"
POD = "logs-agent"


def graph(
    monkeypatch: pytest.MonkeyPatch, *, root: Path = ROOT, kind: str = "bundled", **fields: Any
) -> Graph:
    logs = {"endpoint": COLLECTOR, **fields}
    wanted = {"kind": kind, "logs": logs}
    return record(monkeypatch, config(lambda values: values.update(monitoring=wanted)), root)


@pytest.fixture(scope="module")
def default() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return graph(monkeypatch)


def mounted(found: Graph) -> dict[str, tuple[str, Spec]]:
    """Return the path and the definition of each mounted volume, by name."""
    volumes = {one["name"]: one for one in pod(found, POD)["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in container(found, POD)["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    return {name: (mounts[name], volume) for name, volume in volumes.items()}


def test_logs_are_not_sent_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    found = record(monkeypatch)

    assert not [one.name for one in found.resources if one.name.startswith("logs")]
    assert "logs" not in found.one("monitoring-config").inputs["data"]["prometheus.yml"]


def test_log_sender_is_one_pod_without_root_or_host_paths(default: Graph) -> None:
    deployment = default.one(POD).inputs["spec"]
    context = container(default, POD)["securityContext"]

    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    assert context["runAsNonRoot"]
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    place, volume = mounted(default)["data"]
    assert volume == {"name": "data", "emptyDir": {}}
    assert environment(default, POD)["STATE"].startswith(f"{place}/")
    assert "hostPath" not in str(pod(default, POD))


def test_sender_may_only_read_pods_and_logs_of_its_namespace(default: Graph) -> None:
    role, binding = default.one("logs-role").inputs, default.one("logs-rights").inputs

    assert role["metadata"]["namespace"] == "slurm"
    assert {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    } == {("pods", "list"), ("pods", "watch"), ("pods/log", "get")}
    assert [one["name"] for one in binding["subjects"]] == [pod(default, POD)["serviceAccountName"]]
    assert not [one for one in default.resources if one.name == "logs-cluster-role"]


def test_settings_set_the_environment_of_the_log_sender(
    monkeypatch: pytest.MonkeyPatch, default: Graph
) -> None:
    variables = environment(default, POD)

    assert variables == {
        "NAMESPACE": "slurm",
        "CLUSTER": "test",
        "ENDPOINT": COLLECTOR,
        "LEVEL": "info",
        "STATE": variables["STATE"],
        "PORT": str(c.LOGS_PORT),
    }
    assert environment(graph(monkeypatch, level="error"), POD) == variables | {"LEVEL": "error"}


def test_settings_and_log_sender_have_the_same_levels() -> None:
    levels = get_args(Logs.model_fields["level"].annotation)

    assert [level.upper() for level in levels] == [one.name for one in Severity]


def test_log_sender_reads_headers_from_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    found = graph(monkeypatch, headers_secret="loki")

    place, volume = mounted(found)["headers"]
    assert environment(found, POD)["HEADERS"] == place
    assert volume["secret"]["secretName"] == "loki"
    assert pod(found, POD)["securityContext"]["fsGroup"] == c.NOBODY_ID, (
        "the files of the Secret must be readable by the group"
    )


def test_log_sender_trusts_certificates_from_a_project_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for path in ROOT.iterdir():
        if not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "lab.pem").write_text("the lab's")
    found = graph(monkeypatch, root=tmp_path, ca="lab.pem")

    place, volume = mounted(found)["config"]
    data = found.one("logs-config").inputs
    assert volume["configMap"]["name"] == data["metadata"]["name"]
    folder, _, file = environment(found, POD)["CA"].rpartition("/")
    assert (folder, data["data"][file]) == (place, "the lab's")
    (tmp_path / "lab.pem").write_text("renewed")
    after = graph(monkeypatch, root=tmp_path, ca="lab.pem")
    annotations = [templates(one)[POD]["metadata"]["annotations"] for one in (found, after)]
    assert annotations[0] != annotations[1], "the sender reads certificates only when it starts"


def test_missing_certificate_file_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(pulumi.RunError, match=r"monitoring\.logs\.ca: no\.pem: No such file"):
        graph(monkeypatch, ca="no.pem")


@pytest.mark.parametrize("kind", ["bundled", "operator", "none"])
def test_log_sender_works_with_every_kind_of_monitoring(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    found = graph(monkeypatch, kind=kind)

    assert found.one(POD)
    monitors = [one.name for one in found.resources if one.name == "monitoring-servicemonitor-logs"]
    assert bool(monitors) == (kind == "operator")
    if kind == "bundled":
        scraped = found.one("monitoring-config").inputs["data"]["prometheus.yml"]
        assert f"logs:{c.LOGS_PORT}" in scraped
