"""Prometheus on the cluster, asked by its API, and where its alerts arrive."""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from components import conventions as c
from tests.e2e.cluster import Cluster, becomes, eventually
from tests.e2e.health.conftest import HOOK_NAMESPACE, receive

RECEIVER = """
import http.server
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 8080), Receiver).serve_forever()
"""


@dataclass(frozen=True)
class Watch:
    """The stack's Prometheus, as its API answers."""

    cluster: Cluster

    def get(self, path: str) -> Any:
        service = f"/api/v1/namespaces/slurm/services/{c.MONITORING}:{c.PROMETHEUS_PORT}/proxy"
        answer = json.loads(self.cluster.kubectl("get", "--raw", f"{service}/api/v1/{path}"))
        assert answer["status"] == "success"
        return answer["data"]

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        found: list[dict[str, Any]] = self.get(f"query?query={quote(expression)}")["result"]
        return found

    def ask_lately(self, expression: str) -> list[dict[str, Any]]:
        """The series that it had in the last ten minutes, as a graph shows them."""
        end = self.now()
        range_ = f"start={end - 600}&end={end}&step=30"
        answer = self.get(f"query_range?query={quote(expression)}&{range_}")
        found: list[dict[str, Any]] = answer["result"]
        return found

    def now(self) -> float:
        """Seconds since 1970, by the clock that alerts are stamped by."""
        return float(self.get("query?query=time()")["result"][1])

    def firing(self, *others: str) -> set[str]:
        """Names of the alerts that fire, or are in one of these states."""
        states, alerts = {"firing", *others}, self.get("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] in states}

    def told(self) -> list[dict[str, Any]]:
        """The alerts that came to the receiver."""
        lines = self.cluster.kubectl("logs", f"--namespace={HOOK_NAMESPACE}", "receiver")
        return [one for line in lines.split("\n") if line for one in json.loads(line)["alerts"]]

    def is_told(self, name: str, status: str = "firing", since: float = 0) -> bool:
        """Whether an alert came that began after that moment."""
        return any(
            (one["labels"]["alertname"], one["status"]) == (name, status)
            and datetime.fromisoformat(one["startsAt"]).timestamp() > since
            for one in self.told()
        )

    def is_told_of(
        self, fault: AbstractContextManager[None], alerts: Collection[str], timeout: float
    ) -> None:
        """While the fault lasts all these alerts are told, none of which held before."""
        becomes("what of them there is already", lambda: self._held(alerts), set(), 900)
        begun = self.now()
        with fault:
            for name in alerts:
                eventually(f"{name} is told", partial(self.is_told, name, since=begun), timeout)

    def _held(self, alerts: Collection[str]) -> set[str]:
        return self.firing("pending").intersection(alerts)


@contextlib.contextmanager
def watched(cluster: Cluster, edit: Callable[[str], str]) -> Iterator[Watch]:
    """Prometheus and Alertmanager with an edit of all their files; as they were, afterwards."""
    # One that a run left behind goes first.
    cluster.kubectl("delete", "namespace", HOOK_NAMESPACE, "--ignore-not-found")
    before = settings_of(cluster)
    try:
        receive(cluster, HOOK_NAMESPACE, 8080, RECEIVER)
        begins_anew(cluster, {name: edit(text) for name, text in before.items()})
        yield Watch(cluster)
    finally:
        cluster.kubectl("delete", "namespace", HOOK_NAMESPACE, "--wait=false")
        begins_anew(cluster, before)


def settings_of(cluster: Cluster) -> dict[str, str]:
    document = json.loads(cluster.kubectl("get", "configmap", c.MONITORING_CONFIG, "-o", "json"))
    found: dict[str, str] = document["data"]
    return found


def impatient(text: str) -> str:
    """The same file, with nothing in it that waits."""
    waits = r"(?m)^( *(?:- )?)(for|group_wait|group_interval): .*$"
    text = re.sub(waits, r"\1\2: 1s", text)
    # What was told before these tests is told again.
    return re.sub(r"(?m)^( *)repeat_interval: .*$", r"\1repeat_interval: 1m", text)


def begins_anew(cluster: Cluster, files: dict[str, str]) -> None:
    """Prometheus and Alertmanager with other files, on that machine as well."""
    patch = json.dumps({"data": files})
    cluster.kubectl("patch", "configmap", c.MONITORING_CONFIG, "--type=merge", f"--patch={patch}")
    with cluster.cordoned("node-1"):
        cluster.replace_pod(f"{c.MONITORING}-0")
