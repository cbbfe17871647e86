"""The setting `placement` chooses the machines and requests of services and Jobs."""

from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from components.conventions import LABEL_COMPONENT, LABEL_NODESET
from components.settings.placement import DEFAULT, Service
from tests.support.graph import Graph, record
from tests.support.stack import config, enable_everything

SERVICES = frozenset(get_args(Service)) - {DEFAULT}
TAINT = {"key": "system", "operator": "Exists"}
KINDS = ("CronJob", "Deployment", "Job", "StatefulSet")


GraphOf = Callable[..., Graph]


@pytest.fixture
def graph_of(monkeypatch: pytest.MonkeyPatch) -> GraphOf:
    """Return a function that records the program's resources for a value of the setting
    `placement`."""

    def of(**placement: Any) -> Graph:
        def edit(values: dict[str, Any]) -> None:
            enable_everything(values)
            values["placement"] = placement

        return record(monkeypatch, config(edit))

    return of


def pods(graph: Graph) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each workload that is not a nodeset: its kind, the name of its service, and its pod."""
    for resource in graph.resources:
        kind = resource.type.rpartition(":")[2]
        if kind in KINDS:
            spec = resource.inputs["spec"]
            spec = spec["jobTemplate"]["spec"] if kind == "CronJob" else spec
            template = spec["template"]
            labels = template["metadata"]["labels"]
            if LABEL_NODESET not in labels:
                yield kind, labels[LABEL_COMPONENT], template["spec"]


DEFAULTS: dict[str, Any] = {
    "node_selector": {"pool": "system"},
    "tolerations": [TAINT],
    "priority_class": "high",
}


def test_default_placement_applies_to_services_and_jobs(graph_of: GraphOf) -> None:
    sizes = {service: {"cpus": 0.7, "memory": "3GiB"} for service in SERVICES}
    found = list(pods(graph_of(default=DEFAULTS, **sizes)))

    assert {service for _, service, _ in found} >= SERVICES
    assert {service for kind, service, _ in found if kind in ("CronJob", "Job")} == {
        *("accounting-backup", "accounts", "backup", "config", "config-check", "jail", "longcheck"),
        *("reconciler", "snapshots"),
    }
    for kind, service, pod in found:
        assert pod["nodeSelector"] == {"pool": "system"}, (kind, service)
        assert TAINT in pod["tolerations"], (kind, service)
        own = "slurm-placeholder" if service == "placeholder" else "high"
        assert pod["priorityClassName"] == own, (kind, service)


def test_placement_of_a_service_overrides_the_default(graph_of: GraphOf) -> None:
    own = {
        service: {
            "node_selector": {"role": service},
            "tolerations": [{"key": service}],
            "priority_class": f"{service}-first",
            "cpus": number + 0.5,
            "memory": f"{number}GiB",
        }
        for number, service in enumerate(sorted(SERVICES), 1)
    }
    found = [each for each in pods(graph_of(default=DEFAULTS, **own)) if each[1] in SERVICES]

    assert {service for _, service, _ in found} == SERVICES
    for kind, service, pod in found:
        assert pod["nodeSelector"] == {"role": service}, (kind, service)
        assert {"key": service, "operator": "Exists"} in pod["tolerations"], (kind, service)
        assert TAINT not in pod["tolerations"], (kind, service)
        assert pod["priorityClassName"] == f"{service}-first", (kind, service)
        number = sorted(SERVICES).index(service) + 1
        size = {"cpu": f"{number}.5", "memory": f"{number * 1024}Mi"}
        main, *_ = pod["containers"]
        assert main["resources"]["requests"] == size, (kind, service)
        assert "cpu" not in main["resources"].get("limits", {}), (kind, service)


def test_empty_values_of_a_service_override_the_default(graph_of: GraphOf) -> None:
    empty: dict[str, Any] = {"node_selector": {}, "tolerations": []}
    found = {service: pod for _, service, pod in pods(graph_of(default=DEFAULTS, rest=empty))}

    assert "nodeSelector" not in found["rest"]
    assert "tolerations" not in found["rest"]
    assert found["rest"]["priorityClassName"] == "high"
    assert found["grafana"]["nodeSelector"] == {"pool": "system"}


def test_default_placement_does_not_apply_to_nodesets(graph_of: GraphOf) -> None:
    graph = graph_of(default=DEFAULTS)

    for name in ("nodeset-cpu-slurmd", "nodeset-big-slurmd"):
        pod = graph.one(name).inputs["spec"]["template"]["spec"]
        assert "pool" not in pod.get("nodeSelector", {})
        assert TAINT not in pod["tolerations"]
        assert "priorityClassName" not in pod
