"""Answer the questions of nodes over HTTP.

- `GET /jobs/<id>/<node>`: may Slurm free a job's resources on a node?
- `GET /machines/<name>`: may slurmd start on this machine?
- `GET /live`: does this process answer? (for Kubernetes)

The answer is 200 for yes, 409 for no, 401 for a question that a node did not sign
(agents/bridge/proof.py), and 503 if this pod cannot know, for example because another pod acts.
Each question changes what the bridge does next, so only nodes may ask.
"""

import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agents.bridge.nodes import Nodes
from agents.bridge.proof import Proofs
from agents.kubernetes import KubernetesError
from agents.say import say
from agents.slurm import SlurmError

CONNECTIONS = 64
"""Largest number of clients of one port at the same time."""
QUESTIONS = 32
"""Largest number of questions that wait for Slurm or Kubernetes at the same time. The other
connections are for questions of the kubelet."""
_SLOT = 1.0
"""Seconds for which a client waits until another one leaves."""


class Handler(BaseHTTPRequestHandler):
    """Answers without a log. A client has 10 seconds for each part of its request."""

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


class LimitedServer(ThreadingHTTPServer):
    """Closes new connections while too many are open, so that clients cannot use up memory."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, port: int, handler: type[Handler]) -> None:
        super().__init__(("", port), handler)
        self._slots = threading.BoundedSemaphore(CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(timeout=_SLOT):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log errors, except those of clients that break off."""
        error = sys.exception()
        if not isinstance(error, OSError):
            say("error", f"cannot answer {client_address}: {error!r}")


class Server(LimitedServer):
    def __init__(self, port: int, key: Path, nodes: Nodes, is_leader: Callable[[], bool]) -> None:
        """`key` is the file with the key that nodes share with the bridge."""
        super().__init__(port, _Handler)
        self.key = key
        self.proofs = Proofs()
        self.questions = threading.BoundedSemaphore(QUESTIONS)
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
        # Read the key each time: Kubernetes changes the file if the Secret changes.
        value, key = self.headers.get("Authorization", ""), self.server.key.read_bytes()
        if not self.server.proofs.accept(value, key, self.path, time.time()):
            self.send(HTTPStatus.UNAUTHORIZED)
        elif not self.server.is_leader() or not self.server.questions.acquire(blocking=False):
            self.send(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            try:
                self.send(HTTPStatus.OK if ask() else HTTPStatus.CONFLICT)
            except (KubernetesError, SlurmError):
                self.send(HTTPStatus.SERVICE_UNAVAILABLE)
            finally:
                self.server.questions.release()
