"""A fake API server with pods that write lines, and a fake receiver, both on loopback."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agents.logs.lines import SECOND
from tests.support.waiting import eventually

WITHIN = 20
"""Time limit in seconds for expected events on a busy machine."""
Object = dict[str, Any]


def stamp(moment: int) -> str:
    second = datetime.fromtimestamp(moment // SECOND, UTC)
    return f"{second:%Y-%m-%dT%H:%M:%S}.{moment % SECOND:09d}Z"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Do not log requests."""

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    @contextmanager
    def stream(self) -> Iterator[Callable[[bytes], object]]:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        yield lambda data: self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    world: Any

    def __init__(self, port: int, handler: type[_Handler]) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.connections: list[socket.socket] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, *_: object) -> None:
        """Ignore errors: the client or the server has ended."""

    def kill(self) -> None:
        """Stop like a killed server: close all connections."""
        self.shutdown()
        self.server_close()
        for one in self.connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(handler: type[_Handler], world: object, port: int = 0) -> Iterator[str]:
    server = _Server(port, handler)
    server.world = world
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.kill()


# --- Kubernetes ----------------------------------------------------------------------------------


@dataclass
class Life:
    """One run of a container, from its start to its end, with the lines that it writes."""

    id: str
    lines: list[tuple[int, str]] = field(default_factory=list)
    is_running: bool = True
    is_cut: bool = False
    """Whether the last line lacks its newline."""
    breaks: int = 0
    """Number of times that the connections for this run were broken."""

    def differs(self, lines: int, breaks: int) -> bool:
        """Return whether the server has something new for a client.

        The client has read `lines` lines and has seen `breaks` broken connections.
        """
        return len(self.lines) > lines or not self.is_running or self.breaks > breaks


@dataclass
class Pod:
    name: str
    component: str
    lives: dict[str, list[Life]]
    """Runs of each container; the last one is the current run."""
    uid: str


class Kubernetes:
    """Fake API server for pods whose containers write the lines of a test."""

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.pods: dict[str, Pod] = {}
        self.events: list[Object] = []
        self.asked: list[dict[str, str]] = []
        """Queries for logs, with the pod's name as `pod`."""
        self._made = 0
        self._time = time.time_ns()

    def make(self, name: str, component: str, *containers: str) -> None:
        with self.news:
            self._made += 1
            lives = {one: [Life(f"containerd://{name}-{one}-{self._made}")] for one in containers}
            self.pods[name] = Pod(name, component, lives, f"uid-{self._made}")
            self._notify("ADDED", name)

    def write(self, pod: str, container: str, *texts: str, ago: float = 0) -> None:
        """Add lines to the current run. Their times are `ago` seconds in the past."""
        with self.news:
            for text in texts:
                self._time = max(self._time + 1, time.time_ns())
                moment = self._time - int(ago * SECOND)
                self.pods[pod].lives[container][-1].lines.append((moment, text))
            self.news.notify_all()

    def end(self, pod: str, container: str, words: str = "") -> None:
        """End a container, optionally with a last line that has no newline."""
        with self.news:
            life = self.pods[pod].lives[container][-1]
            if words:
                life.is_cut = True
                self.write(pod, container, words)
            life.is_running = False
            self._notify("MODIFIED", pod)

    def restart(self, pod: str, container: str) -> None:
        with self.news:
            lives = self.pods[pod].lives[container]
            lives[-1].is_running = False
            lives.append(Life(f"{lives[0].id}-{len(lives)}"))
            self._notify("MODIFIED", pod)

    def cut(self, pod: str, container: str) -> None:
        """Break the connections for a container's log. The container continues."""
        with self.news:
            self.pods[pod].lives[container][-1].breaks += 1
            self.news.notify_all()

    def delete(self, name: str) -> None:
        with self.news:
            for lives in self.pods[name].lives.values():
                lives[-1].is_running = False
            self._notify("DELETED", name)
            del self.pods[name]

    def _notify(self, type_: str, name: str) -> None:
        self.events.append({"type": type_, "object": self.object(self.pods[name])})
        self.news.notify_all()

    def object(self, pod: Pod) -> Object:
        statuses = [
            {
                "name": name,
                "containerID": lives[-1].id,
                "restartCount": len(lives) - 1,
                "state": {"running": {}} if lives[-1].is_running else {"terminated": {}},
            }
            for name, lives in pod.lives.items()
        ]
        labels = {
            "app.kubernetes.io/name": "slurmstack",
            "slurmstack.dev/component": pod.component,
        }
        return {
            "metadata": {"name": pod.name, "uid": pod.uid, "labels": labels},
            "spec": {"nodeName": "node-0"},
            "status": {"containerStatuses": statuses},
        }

    def serve(self, port: int = 0) -> Any:
        return serving(_ApiHandler, self, port)


class _ApiHandler(_Handler):
    def do_GET(self) -> None:
        world: Kubernetes = self.server.world  # type: ignore[attr-defined]  # a _Server
        split = urlsplit(self.path)
        query = {name: value for name, (value,) in parse_qs(split.query).items()}
        assert split.path.startswith("/api/v1/namespaces/slurm/pods")
        assert self.headers["Authorization"] == "Bearer token"
        *_, pod, last = split.path.split("/")
        if last == "log":
            self._log(world, pod, query)
        elif query.get("watch"):
            self._watch(world, int(query["resourceVersion"]))
        else:
            with world.news:
                pods = [world.object(one) for one in world.pods.values()]
                version = str(len(world.events))
            body = {"metadata": {"resourceVersion": version}, "items": pods}
            self.answer(200, json.dumps(body).encode())

    def _watch(self, world: Kubernetes, seen: int) -> None:
        with self.stream() as send:
            while True:
                with world.news:
                    world.news.wait_for(lambda: len(world.events) > seen, 1)  # noqa: B023
                    events, seen = world.events[seen:], len(world.events)
                for event in events:
                    send(json.dumps(event).encode() + b"\n")

    def _log(self, world: Kubernetes, pod: str, query: dict[str, str]) -> None:
        with world.news:
            world.asked.append({"pod": pod, **query})
            lives = world.pods[pod].lives[query["container"]] if pod in world.pods else []
        is_previous = query.get("previous") == "true"
        if len(lives) < 1 + is_previous:
            self.answer(400 if lives else 404, b'{"message": "there is no such log"}')
            return
        life = lives[-2] if is_previous else lives[-1]
        since = datetime.strptime(query["sinceTime"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        begin, at, breaks = int(since.timestamp()) * SECOND, 0, life.breaks
        with self.stream() as send:
            while True:
                with world.news:
                    more = life.lines[at:]
                    at += len(more)
                    is_broken, is_over = life.breaks > breaks, not life.is_running
                for moment, text in more:
                    if moment >= begin:
                        end = "" if life.is_cut and (moment, text) == life.lines[-1] else "\n"
                        send(f"{stamp(moment)} {text}{end}".encode())
                if is_broken:
                    self.connection.close()
                    raise ConnectionAbortedError
                if is_over or is_previous:
                    return
                with world.news:
                    world.news.wait_for(lambda: life.differs(at, breaks), 1)  # noqa: B023


# --- The receiver --------------------------------------------------------------------------------


class Receiver:
    """Fake receiver that accepts or refuses lines."""

    def __init__(self) -> None:
        self.status = 200
        self.headers_out: dict[str, str] = {}
        """Headers of the receiver's answers."""
        self.body = b"{}"
        self.requests = 0
        self.headers: dict[str, str] = {}
        """Headers of the last request."""
        self.records: list[tuple[dict[str, str], Object]] = []
        """Attributes of the source, and the record as received, for each accepted line."""

    def texts(self, container: str = "") -> list[str]:
        return [
            record["body"]["stringValue"]
            for source, record in self.records
            if container in ("", source["k8s.container.name"])
        ]

    def has(self, *texts: str) -> None:
        """Wait until the texts have arrived."""
        eventually(f"{texts} arrive", lambda: set(texts) <= set(self.texts()))

    def serve(self, port: int = 0) -> Any:
        return serving(_ReceiverHandler, self, port)


class _ReceiverHandler(_Handler):
    def do_POST(self) -> None:
        world: Receiver = self.server.world  # type: ignore[attr-defined]  # a _Server
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/json"
        assert self.path == "/otlp/v1/logs"
        world.requests += 1
        world.headers = dict(self.headers.items())
        if world.status == 200:
            for group in json.loads(body)["resourceLogs"]:
                found = group["resource"]["attributes"]
                source = {one["key"]: one["value"]["stringValue"] for one in found}
                for scope in group["scopeLogs"]:
                    world.records += [(source, record) for record in scope["logRecords"]]
        self.answer(world.status, world.body, world.headers_out)
