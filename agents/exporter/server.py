"""HTTP server: sends Prometheus the metrics that the exporter read last, and answers the
kubelet's probes."""

import gzip
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST

from agents.exporter.exporter import Exporter

METRICS, READY, ALIVE = "/metrics", "/ready", "/alive"


class Server(ThreadingHTTPServer):
    """Server of an exporter on all addresses. If the port is 0, the kernel chooses a free port.

    `is_alive` returns whether the exporter still tries to read data. Failed attempts also count.
    """

    daemon_threads = True

    def __init__(self, exporter: Exporter, port: int, is_alive: Callable[[], bool]) -> None:
        super().__init__(("", port), _Handler)
        self.exporter = exporter
        self.is_alive = is_alive


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10
    """Time limit in seconds for receiving a client's request."""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == METRICS:
            self._metrics()
        elif path == READY:
            # The exporter is also ready if Slurm does not answer, because scrapes must show the
            # outage.
            self._answer_if(self.server.exporter.rounds > 0)
        elif path == ALIVE:
            self._answer_if(self.server.is_alive())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"see {METRICS}\n".encode())

    def _metrics(self) -> None:
        body = self.server.exporter.metrics()
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            # Use the fastest compression: the body has megabytes, and the network is fast.
            packed = gzip.compress(body, compresslevel=1)
            self._send(HTTPStatus.OK, CONTENT_TYPE_LATEST, packed, ("Content-Encoding", "gzip"))
        else:
            self._send(HTTPStatus.OK, CONTENT_TYPE_LATEST, body)

    def _answer_if(self, holds: bool) -> None:
        status = HTTPStatus.OK if holds else HTTPStatus.SERVICE_UNAVAILABLE
        self._send(status, "text/plain", f"{status.phrase}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, *more: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *more):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not log scrapes."""
