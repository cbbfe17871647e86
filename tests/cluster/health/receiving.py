"""Programs on the cluster that print what they receive."""

from images import tags
from tests.support.cluster import Cluster

COLLECTOR_NAMESPACE = "collector"
COLLECTOR = f"http://receiver.{COLLECTOR_NAMESPACE}.svc.cluster.local:4318"
"""Where the daemons' lines are sent; who is there prints them, and answers nothing while a file
says so."""
AWAY = "/tmp/away"
COLLECTOR_PROGRAM = f"""
import gzip, http.server, json, os
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        if os.path.exists("{AWAY}"):
            return
        for group in json.loads(body)["resourceLogs"]:
            source = group["resource"]["attributes"]
            for scope in group["scopeLogs"]:
                for record in scope["logRecords"]:
                    print(json.dumps([source, record]), flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", 4318), Receiver).serve_forever()
"""


def receive(cluster: Cluster, namespace: str, port: int, program: str) -> None:
    """Runs a program of Python's that listens, as `receiver` in a namespace of its own."""
    there = f"--namespace={namespace}"
    cluster.kubectl("create", "namespace", namespace)
    # On the machine that no test takes away.
    with cluster.cordoned("node-1"):
        cluster.kubectl(
            *("run", "receiver", there, f"--image={tags.reference('agents')}", f"--port={port}"),
            *("--expose", "--image-pull-policy=IfNotPresent", "--command", "--"),
            *("python3", "-c", program),
        )
        cluster.kubectl("wait", there, "--for=condition=Ready", "pod/receiver", "--timeout=60s")
