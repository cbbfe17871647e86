"""HTTP servers on the cluster that print the requests that they receive."""

import textwrap

from images import tags
from tests.support.cluster import Cluster


def _server(port: int, post: str) -> str:
    """Return the Python code of an HTTP server.

    The server runs the statements `post` for each POST request. The variable `body` in these
    statements contains the body of the request.
    """
    return f"""
import gzip, http.server, json, os
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
{textwrap.indent(post, " " * 8)}
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", {port}), Receiver).serve_forever()
"""


COLLECTOR_NAMESPACE, COLLECTOR_PORT = "collector", 4318
COLLECTOR = f"http://receiver.{COLLECTOR_NAMESPACE}.svc.cluster.local:{COLLECTOR_PORT}"
"""URL of the collector, which gets the daemons' log lines. While the file AWAY exists, the
collector's program neither prints lines nor answers."""
AWAY = "/tmp/away"
COLLECTOR_PROGRAM = _server(
    COLLECTOR_PORT,
    f"""
lines = gzip.decompress(body)
if os.path.exists("{AWAY}"):
    return
for group in json.loads(lines)["resourceLogs"]:
    source = group["resource"]["attributes"]
    for scope in group["scopeLogs"]:
        for record in scope["logRecords"]:
            print(json.dumps([source, record]), flush=True)
self.send_response(200)
self.end_headers()
""",
)
CLOUD_NAMESPACE, CLOUD_PORT = "cloud", 4320
CLOUD = f"http://receiver.{CLOUD_NAMESPACE}.svc.cluster.local:{CLOUD_PORT}"
"""URL of a server that acts as a cloud's API. It prints each request that has the right token."""
REPLACE = f"""
import os, pathlib, httpx
token = pathlib.Path("/etc/slurmstack/replace/token").read_text()
names = ("MACHINE", "MACHINE_UID", "PROVIDER_ID", "SLURM_NODE", "CAUSE")
request = {{name: os.environ[name] for name in names}}
httpx.post("{CLOUD}", json=request, headers={{"Authorization": token}}).raise_for_status()
"""
"""The script of `reconciler.replace`, which is in the Secret with the token."""


def cloud_program(token: str) -> str:
    return _server(
        CLOUD_PORT,
        f"""
allowed = self.headers["Authorization"] == "{token}"
if allowed:
    print(body.decode(), flush=True)
self.send_response(200 if allowed else 401)
self.end_headers()
""",
    )


def receive(cluster: Cluster, namespace: str, port: int, program: str) -> None:
    """Run a Python server in its own namespace, as pod and Service `receiver`."""
    there = f"--namespace={namespace}"
    cluster.kubectl("create", "namespace", namespace)
    # Use the machine that tests never freeze.
    with cluster.cordoned("node-1"):
        cluster.kubectl(
            *("run", "receiver", there, f"--image={tags.reference('agents')}", f"--port={port}"),
            *("--expose", "--image-pull-policy=IfNotPresent", "--command", "--"),
            *("python3", "-c", program),
        )
        cluster.kubectl("wait", there, "--for=condition=Ready", "pod/receiver", "--timeout=60s")
