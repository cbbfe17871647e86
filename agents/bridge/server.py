"""Answer the questions of nodes over HTTP.

- `GET /jobs/<id>/<node>`: may Slurm free a job's resources on a node?
- `GET /machines/<name>`: may slurmd start on this machine?
- `GET /live`: does this process answer? (for Kubernetes)

The answer is 200 for yes, 409 for no, and 503 if this pod cannot know, for example because another
pod acts.
"""

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agents.bridge.nodes import Nodes
from agents.kubernetes import KubernetesError
from agents.slurm import SlurmError


class Handler(BaseHTTPRequestHandler):
    """Answers without a log. A client has 10 seconds for its request."""

    timeout = 10

    def send(self, status: HTTPStatus, body: bytes = b"") -> None:
        """Send an answer; `body` is JSON."""
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, nodes: Nodes, is_leader: Callable[[], bool]) -> None:
        super().__init__(("", port), _Handler)
        self.nodes = nodes
        self.is_leader = is_leader


class _Handler(Handler):
    server: Server

    def do_GET(self) -> None:
        match self.path.strip("/").split("/"):
            case ["jobs", job, node] if job.isascii() and job.isdecimal():
                self._answer(lambda: self.server.nodes.may_free(int(job), node))
            case ["machines", machine]:
                self._answer(lambda: self.server.nodes.may_start(machine))
            case ["live"]:
                self.send(HTTPStatus.OK)
            case _:
                self.send(HTTPStatus.NOT_FOUND)

    def _answer(self, ask: Callable[[], bool]) -> None:
        try:
            if not self.server.is_leader():
                self.send(HTTPStatus.SERVICE_UNAVAILABLE)
            else:
                self.send(HTTPStatus.OK if ask() else HTTPStatus.CONFLICT)
        except (KubernetesError, SlurmError):
            self.send(HTTPStatus.SERVICE_UNAVAILABLE)
