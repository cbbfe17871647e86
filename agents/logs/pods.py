"""The stack's pods and the logs of their containers, as Kubernetes' API reports them.

For logs, see the operation `read log of the specified Pod` of the API.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from agents import labels
from agents.kubernetes import Streams, decoded
from agents.logs.lines import SECOND

OURS = f"{labels.STACK},{labels.COMPONENT}!={labels.LOGS}"
"""Selector of all pods except this agent's own pod, which logs only how it sends lines."""
WATCH = 300
"""Duration of a watch in seconds. After a watch, the agent lists all pods again."""


# --- Fields that are read, with their names in the API -------------------------------------------


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _State(msgspec.Struct):
    running: dict[str, Any] | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    name: str
    container_id: str = msgspec.field(name="containerID", default="")
    """Id of the current run. It is empty before the first start."""
    restart_count: int = 0
    state: _State = msgspec.field(default_factory=_State)


class _Status(msgspec.Struct, rename="camel"):
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []


class Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def containers(self) -> list[ContainerStatus]:
        """Return all containers that have started, including init containers."""
        both = (*self.status.init_container_statuses, *self.status.container_statuses)
        return [one for one in both if one.container_id]


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class Pods(msgspec.Struct):
    metadata: _ListMeta
    items: list[Pod]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


# --- Requests ------------------------------------------------------------------------------------


class Api:
    """The pods of one namespace. All methods raise `KubernetesError`."""

    def __init__(self, namespace: str, streams: Streams) -> None:
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._streams = streams

    async def pods(self) -> Pods:
        """Return all pods of the stack except this one."""
        async with self._streams.get(self._pods, {"labelSelector": OURS}) as response:
            return decoded(f"GET {self._pods}", await response.aread(), Pods)

    async def watch(self, version: str) -> AsyncIterator[tuple[Pod, bool]]:
        """Yield changes since a version of the list: a pod, and whether the pod still exists."""
        asked = f"GET {self._pods}"
        query = {
            "labelSelector": OURS,
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH),
        }
        async with self._streams.get(self._pods, query, silence=WATCH + 30) as response:
            async for line in response.aiter_lines():
                event = decoded(asked, line, _Event)
                if event.type == "ERROR":  # for example, the version is too old
                    return
                pod = decoded(asked, bytes(event.object), Pod)
                yield pod, event.type != "DELETED"

    async def log(
        self, pod: str, container: str, since: int, *, previous: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield a container's log since `since`, rounded down to a second.

        Each line has its timestamp. Follow the log until the container ends. With `previous`, yield
        the log of the previous run instead.
        """
        second = datetime.fromtimestamp(since // SECOND, UTC)
        query = {
            "container": container,
            "timestamps": "true",
            "sinceTime": second.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "previous" if previous else "follow": "true",
        }
        path = f"{self._pods}/{pod}/log"
        async with self._streams.get(path, query, silence=None) as response:
            async for chunk in response.aiter_bytes():
                yield chunk
