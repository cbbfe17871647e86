"""HTTP server that simulates the part of Kubernetes' API that the reconciler uses.

Usage: `python3 kubernetes.py world.json`, where the file contains the arguments of `World`.

The server returns pages of objects of realistic size over TLS. It renders the pages in advance, so
that its own work does not affect the result. It uses only Python's standard library, because it
runs in a container.
"""

import http.server
import json
import ssl
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

PORT = 6443
NUMBER = "#number#"
"""Placeholder for the number of each object in the two templates."""

Object = dict[str, Any]


def compact(value: Object) -> str:
    return json.dumps(value, separators=(",", ":"))


class World:
    def __init__(self, count: int, node: Object, pod: Object) -> None:
        self.count = count
        self.node, self.pod = compact(node), compact(pod)
        self.memory: Object = {"metadata": {"resourceVersion": "1"}, "data": {}}
        self.cordoned = range(0)
        self.pages: dict[tuple[str, int], list[bytes]] = {}
        """Pages by resource and page size."""

    def cordon(self, first: int, end: int) -> None:
        self.cordoned = range(first, end)
        for what, limit in self.pages:
            if what == "nodes":
                self.pages[what, limit] = list(self._pages(what, limit))

    def page(self, what: str, limit: int, number: int) -> bytes:
        if (what, limit) not in self.pages:
            self.pages[what, limit] = list(self._pages(what, limit))
        return self.pages[what, limit][number]

    def _pages(self, what: str, limit: int) -> Iterator[bytes]:
        template = self.node if what == "nodes" else self.pod
        for number, first in enumerate(range(0, self.count, limit)):
            end = min(first + limit, self.count)
            further = {"continue": str(number + 1)} if end < self.count else {}
            items = [self._item(template, ordinal) for ordinal in range(first, end)]
            head = compact({"kind": "List", "metadata": {"resourceVersion": "1", **further}})
            yield f'{head[:-1]},"items":[{",".join(items)}]}}'.encode()

    def _item(self, template: str, ordinal: int) -> str:
        text = template.replace(NUMBER, str(ordinal))
        if template == self.node and ordinal in self.cordoned:
            text = text.replace('"spec":{', '"spec":{"unschedulable":true,', 1)
        return text


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: World

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        what = path.rpartition("/")[2]
        if what not in ("nodes", "pods"):
            self._answer(json.dumps(self._other(path)).encode())
            return
        asked = dict(urllib.parse.parse_qsl(query))
        limit, number = int(asked.get("limit", self.world.count)), int(asked.get("continue", 0))
        self._answer(self.world.page(what, limit, number))

    def _other(self, path: str) -> Object:
        """Answer a GET request for an object that is neither a Node nor a Pod.

        The answer is one of three: an empty list of StatefulSets; a PodDisruptionBudget that
        permits all evictions; or the ConfigMap in which the reconciler keeps its state.
        """
        if path.endswith("/statefulsets"):
            return {"metadata": {"resourceVersion": "1"}, "items": []}
        if "/poddisruptionbudgets/" in path:
            return {"spec": {"minAvailable": 0}}
        return self.world.memory

    def do_PATCH(self) -> None:
        """Patch the ConfigMap with the reconciler's state, the only object that a pass changes."""
        memory, body = self.world.memory, self._body()
        version = memory["metadata"]["resourceVersion"]
        if "configmaps" not in self.path or body["metadata"]["resourceVersion"] != version:
            self._answer(b'{"message": "resourceVersion is outdated"}', status=HTTPStatus.CONFLICT)
            return
        memory["metadata"]["resourceVersion"] = str(int(version) + 1)
        memory["data"] |= body["data"]
        self._answer(json.dumps(memory).encode())

    def do_POST(self) -> None:
        """Accept an event."""
        self._body()
        self._answer(b"{}", status=HTTPStatus.CREATED)

    def do_PUT(self) -> None:
        """Cordon exactly the machines with numbers in a range, as the benchmark requests."""
        self.world.cordon(*self._body())
        self._answer(b"{}")

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing, because logging would take time."""


def main(file: Path) -> None:
    Handler.world = World(**json.loads(file.read_text()))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file.with_name("server.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
