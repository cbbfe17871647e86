"""A small Kubernetes API over real HTTP, which can fail like a real API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
Answer = tuple[int, Any]
KINDS = {
    "/api/v1": [
        ("namespaces", "Namespace", False),
        ("configmaps", "ConfigMap", True),
        ("secrets", "Secret", True),
        ("pods", "Pod", True),
        ("services", "Service", True),
        ("events", "Event", True),
        ("persistentvolumeclaims", "PersistentVolumeClaim", True),
    ],
    "/apis/apps/v1": [("statefulsets", "StatefulSet", True)],
}


@dataclass
class FakeApi:
    """Objects by path. Functions in ``script`` can answer requests instead of the API."""

    objects: dict[str, Object] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    script: list[Callable[[str, str], Answer | None]] = field(default_factory=list)
    on_delete: Callable[[Object], bool] = lambda _object: True
    kinds: dict[str, list[tuple[str, str, bool]]] = field(default_factory=lambda: dict(KINDS))
    port: int = 0

    @property
    def kubeconfig(self) -> str:
        """Return the contents of a kubeconfig for this API."""
        return json.dumps(
            {
                "current-context": "fake",
                "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
                "clusters": [
                    {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
                ],
                "users": [{"name": "me", "user": {"token": "t"}}],
            }
        )

    def writes(self) -> list[str]:
        """Return the requests that changed an object, as "METHOD path"."""
        return [
            f"{method} {path}"
            for method, path, query in self.requests
            if method != "GET" and "dryRun" not in query
        ]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        """Answer one request."""
        self.requests.append((method, path, query))
        for scripted in self.script:
            found = scripted(method, path)
            if found is not None:
                return found
        if path in self.kinds:
            return 200, {
                "resources": [
                    {"name": plural, "kind": kind, "namespaced": namespaced}
                    for plural, kind, namespaced in self.kinds[path]
                ]
            }
        if method == "PATCH":
            return self._apply(path, query, body)
        if path not in self.objects:
            collection = [o for p, o in self.objects.items() if p.rpartition("/")[0] == path]
            known = path.rpartition("/")[2] in {k[0] for ks in self.kinds.values() for k in ks}
            return (200, {"items": collection}) if known else (404, status(404, "NotFound"))
        if method == "DELETE":
            if self.on_delete(self.objects[path]):
                del self.objects[path]
            return 200, {}
        return 200, self.objects[path]

    def _apply(self, path: str, query: dict[str, str], body: Any) -> Answer:
        known = self.objects.get(path)
        if isinstance(body, list):
            return 200, known
        live = {**(known or {}), **body}
        uid = (known or {}).get("metadata", {}).get("uid") or f"uid-{len(self.requests)}"
        manager = {"manager": query["fieldManager"], "operation": "Apply", "fieldsV1": {}}
        live["metadata"] = {
            **body["metadata"],
            "uid": uid,
            "generation": 1,
            "resourceVersion": str(len(self.requests)),
            "managedFields": [manager],
        }
        if "dryRun" not in query:
            self.objects[path] = live
        return (200 if known else 201), live


def status(code: int, reason: str, message: str = "", **details: Any) -> Object:
    """Return the Status object of an error."""
    return {"kind": "Status", "code": code, "reason": reason, "message": message, **details}


@contextmanager
def serving() -> Iterator[FakeApi]:
    """Run a fake API until the block ends."""
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for each response: a second packet would wait for an ACK

        def _serve(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            if query.get("watch"):
                code, answer = 403, status(403, "Forbidden")
            else:
                code, answer = api.answer(self.command, url.path, query, body)
            if code == 0:
                self.close_connection = True
                self.connection.close()
                return
            raw = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_PATCH = do_DELETE = _serve  # noqa: N815 - names that http.server requires

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of http.server
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
