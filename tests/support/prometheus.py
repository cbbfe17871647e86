"""Queries to the API of Prometheus on the cluster."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from components import conventions as c
from tests.support import kube
from tests.support.alerts import Alerts
from tests.support.cluster import Cluster

HOOK_NAMESPACE = "hooks"
HOOK = f"http://receiver.{HOOK_NAMESPACE}.svc.cluster.local:8080/alerts"
"""URL to which Alertmanager posts alerts."""


@dataclass(frozen=True)
class Watch(Alerts):
    """The stack's Prometheus, through its API."""

    cluster: Cluster

    def get(self, path: str) -> Any:
        service = f"/api/v1/namespaces/slurm/services/{c.MONITORING}:{c.PROMETHEUS_PORT}/proxy"
        answer = kube.get(self.cluster.kubeconfig, f"{service}/api/v1/{path}")
        assert answer["status"] == "success"
        return answer["data"]

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression."""
        found: list[dict[str, Any]] = self.get(f"query?query={quote(expression)}")["result"]
        return found

    def ask_lately(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression in the last ten minutes, as a graph shows them."""
        end = self.now()
        range_ = f"start={end - 600}&end={end}&step=30"
        answer = self.get(f"query_range?query={quote(expression)}&{range_}")
        found: list[dict[str, Any]] = answer["result"]
        return found

    def now(self) -> float:
        """Return the Unix time of the clock that sets the alerts' timestamps."""
        return float(self.get("query?query=time()")["result"][1])

    def firing(self, *others: str) -> set[str]:
        """Return the names of alerts that fire or are in one of the states `others`."""
        states, alerts = {"firing", *others}, self.get("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] in states}

    def received(self) -> list[dict[str, Any]]:
        """Return the alerts that the receiver got."""
        lines = self.cluster.kubectl("logs", f"--namespace={HOOK_NAMESPACE}", "receiver")
        return [one for line in lines.split("\n") if line for one in json.loads(line)["alerts"]]
