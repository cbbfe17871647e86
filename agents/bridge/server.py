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


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, nodes: Nodes, is_leader: Callable[[], bool]) -> None:
        super().__init__(("", port), _Handler)
        self.nodes = nodes
        self.is_leader = is_leader


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10

    def do_GET(self) -> None:
        match self.path.strip("/").split("/"):
            case ["jobs", job, node] if job.isascii() and job.isdecimal():
                self._answer(lambda: self.server.nodes.may_free(int(job), node))
            case ["machines", machine]:
                self._answer(lambda: self.server.nodes.may_start(machine))
            case ["live"]:
                self._send(HTTPStatus.OK)
            case _:
                self._send(HTTPStatus.NOT_FOUND)

    def _answer(self, ask: Callable[[], bool]) -> None:
        try:
            if not self.server.is_leader():
                self._send(HTTPStatus.SERVICE_UNAVAILABLE)
            else:
                self._send(HTTPStatus.OK if ask() else HTTPStatus.CONFLICT)
        except (KubernetesError, SlurmError):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE)

    def _send(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Do not log requests."""
