"""Prometheus and Alertmanager with edited files, and the receiver of their alerts."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator

from components import conventions as c
from tests.cluster.health.receiving import receive
from tests.support.cluster import Cluster
from tests.support.prometheus import HOOK_NAMESPACE, Watch

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


@contextlib.contextmanager
def watched(cluster: Cluster, edit: Callable[[str], str]) -> Iterator[Watch]:
    """Run Prometheus and Alertmanager with edited files; restore the files afterwards."""
    # Remove the namespace that an interrupted run left behind.
    cluster.kubectl("delete", "namespace", HOOK_NAMESPACE, "--ignore-not-found")
    before = settings_of(cluster)
    try:
        receive(cluster, HOOK_NAMESPACE, 8080, RECEIVER)
        restart_with(cluster, {name: edit(text) for name, text in before.items()})
        yield Watch(cluster)
    finally:
        cluster.kubectl("delete", "namespace", HOOK_NAMESPACE, "--wait=false")
        restart_with(cluster, before)


def settings_of(cluster: Cluster) -> dict[str, str]:
    document = json.loads(cluster.kubectl("get", "configmap", c.MONITORING_CONFIG, "-o", "json"))
    files: dict[str, str] = document["data"]
    return files


def impatient(text: str) -> str:
    """Return an alerts' file without delays."""
    waits = r"(?m)^( *(?:- )?)(for|group_wait|group_interval): .*$"
    text = re.sub(waits, r"\1\2: 1s", text)
    # Alerts that fired before these tests are sent again.
    return re.sub(r"(?m)^( *)repeat_interval: .*$", r"\1repeat_interval: 1m", text)


def restart_with(cluster: Cluster, files: dict[str, str]) -> None:
    """Restart Prometheus and Alertmanager with other files, on node-0."""
    patch = json.dumps({"data": files})
    cluster.kubectl("patch", "configmap", c.MONITORING_CONFIG, "--type=merge", f"--patch={patch}")
    with cluster.cordoned("node-1"):
        cluster.replace_pod(f"{c.MONITORING}-0")
