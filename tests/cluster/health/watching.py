"""Prometheus and Alertmanager with edited files, and the receiver of their alerts."""

import base64
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


Files = dict[str, dict[str, str]]
"""Texts of files, by Kubernetes object and file name."""
RULES = f"configmap/{c.MONITORING_CONFIG}"
ALERTING = f"secret/{c.ALERTMANAGER_SECRET}"


@contextlib.contextmanager
def watched(cluster: Cluster, edit: Callable[[str], str]) -> Iterator[Watch]:
    """Run Prometheus and Alertmanager with edited files; restore the files afterwards."""
    # Remove the namespace that an interrupted run left behind.
    cluster.kubectl("delete", "namespace", HOOK_NAMESPACE, "--ignore-not-found")
    before = files_of(cluster)
    try:
        receive(cluster, HOOK_NAMESPACE, 8080, RECEIVER)
        edited = {
            one: {name: edit(text) for name, text in files.items()} for one, files in before.items()
        }
        assert all(edited[one] != before[one] for one in before)
        restart_with(cluster, edited)
        yield Watch(cluster)
    finally:
        cluster.kubectl("delete", "namespace", HOOK_NAMESPACE, "--wait=false")
        restart_with(cluster, before)


def files_of(cluster: Cluster) -> Files:
    rules = json.loads(cluster.kubectl("get", RULES, "-o", "json"))["data"]
    alerting = json.loads(cluster.kubectl("get", ALERTING, "-o", "json"))["data"]
    return {
        RULES: rules,
        ALERTING: {name: base64.b64decode(text).decode() for name, text in alerting.items()},
    }


def impatient(text: str) -> str:
    """Return an alerts' file without delays."""
    waits = r"(?m)^( *(?:- )?)(for|group_wait|group_interval): .*$"
    text = re.sub(waits, r"\1\2: 1s", text)
    # Also shorten the interval after which Alertmanager sends an alert again, because some alerts
    # fire already when the tests start.
    return re.sub(r"(?m)^( *)repeat_interval: .*$", r"\1repeat_interval: 1m", text)


def restart_with(cluster: Cluster, files: Files) -> None:
    """Restart Prometheus and Alertmanager with other files, on node-0."""
    for one, field in ((RULES, "data"), (ALERTING, "stringData")):
        patch = json.dumps({field: files[one]})
        cluster.kubectl("patch", one, "--type=merge", f"--patch={patch}")
    with cluster.cordoned("node-1"):
        cluster.replace_pod(f"{c.MONITORING}-0")
