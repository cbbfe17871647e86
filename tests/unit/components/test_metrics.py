"""Tests of the Services for metrics: each selects only the pod that serves the metrics, and the
right port."""

from typing import Any

import pytest

from components import conventions as c
from tests.support.graph import Graph, container, environment, record, templates
from tests.support.stack import config

ON = {
    "long_checks": {"checks": [{"name": "cpu-memory"}]},
    "monitoring": {"logs": {"endpoint": "http://collector:4318"}},
}
PODS = {
    "exporter": "exporter-agent",
    "logs": "logs-agent",
    "longchecks": "longchecks-desk",
    "reconciler": "reconciler-agent",
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(monkeypatch, config(lambda values: values.update(ON)))


def behind(graph: Graph, service: dict[str, Any]) -> dict[str, int]:
    """Return the pods that a Service selects, each with the number of the targeted port."""
    (port,) = service["spec"]["ports"]
    return {
        name: one["containerPort"]
        for name, template in templates(graph).items()
        if service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        for container in template["spec"]["containers"]
        for one in container.get("ports", ())
        if one["name"] == port["targetPort"]
    }


def test_cases_cover_every_component_that_prometheus_scrapes() -> None:
    # Each pod of the bridge has its own metrics, so Prometheus scrapes its pods.
    assert set(PODS) == set(c.SCRAPED) - {c.BRIDGE}


@pytest.mark.parametrize(("component", "pod"), PODS.items())
def test_each_service_selects_only_the_pod_that_serves_metrics(
    graph: Graph, component: str, pod: str
) -> None:
    service = graph.one(f"{component}-service").inputs
    port = c.SCRAPED[component]

    assert service["metadata"]["name"] == component
    assert service["metadata"]["labels"] == service["spec"]["selector"]
    assert [(one["name"], one["port"]) for one in service["spec"]["ports"]] == [("metrics", port)]
    assert behind(graph, service) == {pod: port}
    assert environment(graph, pod)["PORT"] == str(port)


def test_pod_of_long_checks_serves_metrics_by_default(graph: Graph) -> None:
    desk = container(graph, "longchecks-desk")

    assert desk["args"] == ["agents.longchecks", "serve"]
    assert "command" not in desk


def test_job_after_a_deploy_serves_no_metrics(graph: Graph) -> None:
    job = container(graph, "reconciler-after-deploy")

    assert "ports" not in job
    assert "PORT" not in {one["name"] for one in job["env"]}
