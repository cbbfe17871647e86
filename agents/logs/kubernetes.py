"""Client of Kubernetes' API for pods and the logs of their containers.

For the formats, see https://kubernetes.io/docs/reference/using-api/api-concepts/ and the operation
`read log of the specified Pod`.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec

from agents.logs.lines import SECOND

COMPONENT = "slurmstack.dev/component"
"""Label of all pods of the stack."""
OWN = "logs"
"""Value of this label on this agent's pod. Its lines are not sent, because they are about
sending."""
OURS = f"app.kubernetes.io/name=slurmstack,{COMPONENT}!={OWN}"
WATCH = 300
"""Duration of a watch in seconds. All pods are listed again after it."""
_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
]
"""Keepalive options: they detect a lost server, even if a daemon logs nothing for days."""


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


class _Failure(msgspec.Struct):
    message: str = ""


def _message(content: bytes) -> str:
    """Return the API server's error message, or "" if the answer is in another format."""
    try:
        return " ".join(msgspec.json.decode(content, type=_Failure).message.split())
    except msgspec.DecodeError:
        return ""


# --- Requests ------------------------------------------------------------------------------------


class ApiError(Exception):
    """A request to Kubernetes failed. The text is one line."""

    def __init__(self, asked: str, said: str, status: int | None = None) -> None:
        self.status = status
        """HTTP status, or None without an answer."""
        super().__init__(f"Kubernetes: GET {asked}: {said}")


class Api:
    """Client of the API server at `url`, for one namespace. All methods raise `ApiError`."""

    def __init__(
        self,
        namespace: str,
        url: str,
        token: Callable[[], str],
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._token = token
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(30, connect=5, pool=None),
            transport=httpx.AsyncHTTPTransport(
                verify=verify,
                # Each followed log has its own connection.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=10),
                socket_options=_OPTIONS,
                trust_env=False,
            ),
        )

    async def pods(self) -> Pods:
        """Return all pods of the stack except this one."""
        async with self._asked(self._pods, {"labelSelector": OURS}) as response:
            try:
                return msgspec.json.decode(await response.aread(), type=Pods)
            except msgspec.DecodeError as error:
                raise ApiError(self._pods, f"unexpected answer: {error}") from error

    async def watch(self, version: str) -> AsyncIterator[tuple[Pod, bool]]:
        """Yield changes since a version of the list: a pod, and whether the pod still exists."""
        query = {
            "labelSelector": OURS,
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH),
        }
        patience = httpx.Timeout(30, connect=5, read=WATCH + 30, pool=None)
        async with self._asked(self._pods, query, patience) as response:
            async for line in response.aiter_lines():
                try:
                    event = msgspec.json.decode(line, type=_Event)
                    if event.type == "ERROR":  # for example, the version is too old
                        return
                    yield msgspec.json.decode(event.object, type=Pod), event.type != "DELETED"
                except msgspec.DecodeError as error:
                    raise ApiError(self._pods, f"unexpected answer: {error}") from error

    async def log(
        self, pod: str, container: str, since: int, *, previous: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield a container's log from the second of `since`. Each line has its timestamp.

        Follow the log until the container ends. With `previous`, yield the log of the previous run
        instead.
        """
        second = datetime.fromtimestamp(since // SECOND, UTC)
        query = {
            "container": container,
            "timestamps": "true",
            "sinceTime": second.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "previous" if previous else "follow": "true",
        }
        patience = httpx.Timeout(30, connect=5, read=None, pool=None)
        async with self._asked(f"{self._pods}/{pod}/log", query, patience) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    @asynccontextmanager
    async def _asked(
        self, path: str, query: dict[str, str], patience: httpx.Timeout | None = None
    ) -> AsyncIterator[httpx.Response]:
        try:
            async with self._http.stream(
                "GET",
                path,
                params=query,
                headers={
                    "Accept-Encoding": "identity",
                    "Authorization": f"Bearer {self._token()}",
                },
                timeout=patience or self._http.timeout,
            ) as response:
                if not response.is_success:
                    status, said = response.status_code, _message(await response.aread())
                    raise ApiError(path, f"HTTP {status} {said}", status)
                yield response
        except (httpx.RequestError, OSError) as error:
            raise ApiError(path, str(error) or type(error).__name__) from error
