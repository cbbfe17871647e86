"""Fake HTTP servers in place of slurmrestd and Kubernetes' API, for tests of nodes on demand.

The servers answer the agent's own HTTP clients in this process, and record the requests.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx

from agents import labels
from agents.kubernetes import Api
from agents.ondemand.__main__ import Agent
from agents.ondemand.wanted import Nodeset, Wanted
from agents.slurm import Client
from agents.slurm.dataparser import VERSION
from local.paths import ROOT

NODESET: Final = "gpu"
RECORD: Final = ROOT / f"tests/unit/agents/slurm/data/{VERSION}.json"
"""Recorded answers of a slurmrestd."""
Object = dict[str, Any]


@dataclass(frozen=True)
class Request:
    at: float
    """Time of the request in seconds, by `WakingNodes`' clock."""
    method: str
    what: str
    """Last part of the path, such as `pods`. For a single node of Slurm, `node`."""
    is_further_page: bool

    @property
    def is_list(self) -> bool:
        """Whether the request gets the first page of a list (see `agents.kubernetes.PAGE`)."""
        return self.method == "GET" and not self.is_further_page


class WakingNodes:
    """The fake servers, with `count` nodes that a job has just woken."""

    def __init__(
        self,
        count: int,
        template: Mapping[str, Any],
        *,
        boot: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use `template` (metadata and spec) for the pods. A pod is ready after `boot` seconds."""
        self.names = [f"{NODESET}-{ordinal}" for ordinal in range(count)]
        self.requests: list[Request] = []
        self._template = dict(template)
        self._boot = boot
        self._clock = clock
        self._pods: dict[str, tuple[float, Object]] = {}
        """For each pod, by name: its creation time (from the clock) and its object."""
        (self._record, *_) = json.loads(RECORD.read_text())["nodes"]["nodes"]
        self._lock = threading.Lock()

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    @property
    def wanted(self) -> Wanted:
        """Settings of the agent. The ceiling is the cost of all nodes together."""
        count = len(self.names)
        nodeset = Nodeset(
            max=count, min=0, idle=600, start=900, keep=frozenset(), schedule=(), price=1.0
        )
        return Wanted(nodesets={NODESET: nodeset}, ceiling=float(count))

    def agent(self, folder: Path) -> Agent:
        """Return the agent of these nodes. Its settings are in a file in `folder`."""
        file = folder / "nodesets.json"
        file.write_text(self.wanted.model_dump_json())
        slurm = Client("http://rest", lambda: "token", transport=self.transport)
        api = Api("http://kubernetes", lambda: "token", transport=self.transport)
        return Agent(slurm, api, "slurm", file)

    def lists(self, what: str) -> list[float]:
        """Return the times at which the agent listed objects of this kind, such as `pods`."""
        return [one.at for one in self.requests if one.is_list and one.what == what]

    # --- Answers ----------------------------------------------------------------------------------

    def _answer(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.strip("/").split("/")
        what = parts[-2] if parts[-2] == "node" else parts[-1]
        with self._lock:
            further = "continue" in request.url.params
            self.requests.append(Request(self._clock(), request.method, what, further))
            match request.method, what:
                case "GET", "nodes":
                    return _ok({"nodes": list(map(self._node, self.names))})
                case "GET", "node":
                    return _ok({"nodes": [self._node(parts[-1])]})
                case "POST", "node":
                    return _ok({"meta": {}})
                case "GET", "pods":
                    return _ok(self._page(request))
                case "GET", "podtemplates":
                    meta = _meta(NODESET, {labels.NODESET: NODESET})
                    return _ok({"items": [{"metadata": meta, "template": self._template}]})
                case "POST", "pods":
                    made = json.loads(request.content)
                    self._pods[made["metadata"]["name"]] = (self._clock(), made)
                    return _ok(made, httpx.codes.CREATED)
        raise AssertionError(f"unexpected request: {request.method} {request.url}")

    def _is_ready(self, name: str) -> bool:
        return name in self._pods and self._clock() - self._pods[name][0] >= self._boot

    def _node(self, name: str) -> Object:
        waking = [] if self._is_ready(name) else ["POWERING_UP", "NOT_RESPONDING"]
        return {**self._record, "name": name, "state": ["ALLOCATED", "CLOUD", *waking]}

    def _page(self, request: httpx.Request) -> Object:
        query = request.url.params
        begin = int(query.get("continue", 0))
        end = begin + int(query["limit"])
        names = list(self._pods)
        further = {"continue": str(end)} if end < len(names) else {}
        return {"metadata": further, "items": list(map(self._pod, names[begin:end]))}

    def _pod(self, name: str) -> Object:
        _, made = self._pods[name]
        ready = "True" if self._is_ready(name) else "False"
        conditions = [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": ready},
        ]
        meta = {**made["metadata"], **_meta(name, made["metadata"]["labels"])}
        return {**made, "metadata": meta, "status": {"conditions": conditions}}


def _meta(name: str, given: Mapping[str, str]) -> Object:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "name": name,
        "uid": f"{name}-uid",
        "labels": dict(given),
        "resourceVersion": "1",
        "creationTimestamp": created,
    }


def _ok(content: Object, status: int = httpx.codes.OK) -> httpx.Response:
    return httpx.Response(status, json=content)
