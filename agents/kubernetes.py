"""Clients of Kubernetes' API, with the pod's service account.

`Api` sends one request after the other. `Streams` reads many endless answers in parallel, for
example logs. For the formats, see https://kubernetes.io/docs/reference/using-api/api-concepts/. The
clients never repeat a request: callers try again at their own interval.
"""

import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import msgspec

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in a pod with its service account's token and the API's certificate authority."""
TIMEOUT = httpx.Timeout(30, connect=5)
"""Seconds."""
PAGE = 500
"""Maximum number of objects that the API server sends in one page of a list. Without pages, an
answer with 5,000 machines would be larger than 50 MB."""
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
]
"""Socket options that detect a lost server, even if a stream brings no data for days."""

WATCH = 300
"""Seconds after which the API server ends a watch."""

Object = dict[str, Any]
T = TypeVar("T")

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Page(msgspec.Struct, Generic[T]):
    """Part of a list."""

    items: list[T] | None = None
    metadata: dict[str, Any] = {}


class Event(msgspec.Struct, Generic[T]):
    """Change of an object in a list."""

    version: str
    """Version of the list after the change."""
    object: T | None = None
    """None if only the list's version is new."""
    is_deleted: bool = False


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: dict[str, Any]


class _Status(msgspec.Struct):
    message: str = ""
    code: int = 0


_ADMISSION = ("denied the request", "denied request", "failed calling webhook")
"""Texts of refusals by webhooks and admission policies (k8s.io/apiserver/pkg/admission, 0.34)."""


class KubernetesError(Exception):
    """A request to Kubernetes failed. The message is one line for people.

    `status` is the HTTP status, or None if the API server did not answer. `said` is the server's
    error message, or the reason why there is no answer.
    """

    def __init__(self, request: str, said: str, status: int | None = None) -> None:
        self.status = status
        self.said = " ".join(said.split())
        remedy = "" if self._by_admission else _remedy(status)
        super().__init__(f"Kubernetes: {request}: {self.said}{remedy}")

    @property
    def is_overtaken(self) -> bool:
        """Whether the object was changed or deleted after it was read."""
        return self.status in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT)

    @property
    def is_refused(self) -> bool:
        """Whether the server refused only this change. Other requests may still succeed.

        Admission policies and webhooks refuse single changes.

        Each webhook chooses the HTTP status of its refusals. Therefore, this property also searches
        the error message for the texts in `_ADMISSION`.
        """
        return self.status == httpx.codes.UNPROCESSABLE_ENTITY or self._by_admission

    @property
    def _by_admission(self) -> bool:
        return any(text in self.said for text in _ADMISSION)


def _remedy(status: int | None) -> str:
    match status:
        case None:
            return (
                "; check that the API server of Kubernetes runs, and that no network policy "
                "blocks the connection"
            )
        case httpx.codes.UNAUTHORIZED | httpx.codes.FORBIDDEN:
            return "; deploy again, to restore the permissions of the service account"
    return ""


class Api:
    """Client of the API server at `url`. All methods raise `KubernetesError`.

    `transport` is for tests.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._token = token
        self._http = httpx.Client(
            base_url=url,
            timeout=TIMEOUT,
            transport=transport
            or httpx.HTTPTransport(verify=verify, socket_options=_KEEPALIVE, trust_env=False),
            trust_env=False,
        )

    def items(self, path: str, kind: type[T], **parameters: str) -> Iterator[T]:
        """Yield the objects of all pages of a list, each with the fields of `kind`."""
        for page in self._pages(path, kind, **parameters):
            yield from page.items or ()

    def listed(self, path: str, kind: type[T]) -> tuple[list[T], str]:
        """Return all objects of a list, each with the fields of `kind`, and the list's version."""
        found: list[T] = []
        version = ""
        for page in self._pages(path, kind):
            found += page.items or ()
            version = page.metadata["resourceVersion"]
        return found, version

    def _pages(self, path: str, kind: type[T], **parameters: str) -> Iterator[Page[T]]:
        query = {"limit": str(PAGE), **parameters}
        while True:
            kinds = Page[kind]  # type: ignore[valid-type]  # callers define the type
            # Do not keep the text of a page in memory while the next page arrives.
            page = decoded(f"GET {path}", self._send("GET", path, query=query), kinds)
            yield page
            following = page.metadata.get("continue")
            if not following:
                return
            query["continue"] = following

    def watch(self, path: str, kind: type[T], version: str) -> Iterator[Event[T]]:
        """Yield the changes of a list since `version`, until the API server ends the watch.

        Raises `KubernetesError` with the status GONE if the server no longer knows the version.
        """
        request = f"GET {path}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH),
        }
        timeout = httpx.Timeout(WATCH + 30, connect=TIMEOUT.connect)
        try:
            with self._http.stream(
                "GET", path, params=query, headers=_headers(self._token), timeout=timeout
            ) as response:
                if not response.is_success:
                    raise _refusal(request, response.status_code, response.read())
                for line in response.iter_lines():
                    yield _event(request, line, kind)
        except (httpx.TransportError, OSError) as error:
            raise KubernetesError(request, str(error) or type(error).__name__) from error

    def ask(
        self, method: str, path: str, body: Object | None = None, *, kind: str = "application/json"
    ) -> Object:
        """Send a request and return the answer. `kind` is the body's media type."""
        content = self._send(method, path, body, kind=kind)
        return decoded(f"{method} {path}", content, Object)

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> bytes:
        request = f"{method} {path}"
        try:
            with self._http.stream(
                method,
                path,
                params=query,
                json=body,
                headers={
                    **_headers(self._token),
                    **({"Content-Type": kind} if body is not None else {}),
                },
            ) as response:
                # Join the content here: a response is part of a reference cycle, and would keep
                # its content in memory until the garbage collector runs.
                content = b"".join(response.iter_bytes())
        except (httpx.TransportError, OSError) as error:
            raise KubernetesError(request, str(error) or type(error).__name__) from error
        if not response.is_success:
            raise _refusal(request, response.status_code, content)
        return content


class Streams:
    """Client of the API server at `url`, for answers that callers read while they arrive."""

    def __init__(
        self, url: str, token: Callable[[], str], verify: ssl.SSLContext | bool = True
    ) -> None:
        self._token = token
        self._http = httpx.AsyncClient(
            base_url=url,
            transport=httpx.AsyncHTTPTransport(
                verify=verify,
                # Do not limit the connections: each stream has its own connection.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=10),
                socket_options=_KEEPALIVE,
                trust_env=False,
            ),
        )

    @asynccontextmanager
    async def get(
        self, path: str, query: Mapping[str, str], silence: float | None = TIMEOUT.read
    ) -> AsyncIterator[httpx.Response]:
        """Send a GET request, and yield the response before its body has arrived.

        The caller reads the body.

        The server may be silent for `silence` seconds, or without limit if `silence` is None.
        Raises `KubernetesError`, also for errors while the caller reads the answer.
        """
        request = f"GET {path}"
        timeout = httpx.Timeout(TIMEOUT.write, connect=TIMEOUT.connect, read=silence, pool=None)
        try:
            async with self._http.stream(
                "GET", path, params=query, headers=_headers(self._token), timeout=timeout
            ) as response:
                if not response.is_success:
                    raise _refusal(request, response.status_code, await response.aread())
                yield response
        except (httpx.RequestError, OSError) as error:
            raise KubernetesError(request, str(error) or type(error).__name__) from error


def _headers(token: Callable[[], str]) -> dict[str, str]:
    return {
        "Accept": "application/json",
        # The API server takes longer to compress answers than to send them.
        "Accept-Encoding": "identity",
        "Authorization": f"Bearer {token()}",
    }


def _refusal(request: str, status: int, content: bytes) -> KubernetesError:
    return KubernetesError(request, f"HTTP {status} {_message(content)}", status)


def decoded(request: str, content: bytes | str, kind: type[T]) -> T:
    """Parse JSON as `kind`. Raises `KubernetesError`, which contains `request`."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise KubernetesError(
            request, f"the answer has an unexpected format: {error}", httpx.codes.OK
        ) from error


def _event(request: str, line: str, kind: type[T]) -> Event[T]:
    raw = decoded(request, line, _RawEvent)
    content = bytes(raw.object)
    if raw.type == "ERROR":
        status = decoded(request, content, _Status)
        raise KubernetesError(request, status.message, status.code)
    version = decoded(request, content, _Versioned).metadata["resourceVersion"]
    if raw.type == "BOOKMARK":
        return Event(version)
    return Event(version, decoded(request, content, kind), raw.type == "DELETED")


def _message(content: bytes) -> str:
    """Return the API server's error message, or "" if the answer is in another format."""
    try:
        return msgspec.json.decode(content, type=_Status).message
    except msgspec.DecodeError:
        return ""


def credentials() -> tuple[str, Callable[[], str], ssl.SSLContext]:
    """Return the API's URL, a function that reads the pod's token, and a TLS context.

    The context contains the cluster's certificate authority. Raises `KubernetesError` outside a
    cluster.
    """
    try:
        host = os.environ["KUBERNETES_SERVICE_HOST"]
        port = os.environ["KUBERNETES_SERVICE_PORT"]
        verify = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    except (KeyError, OSError) as error:
        raise KubernetesError(
            "credentials",
            f"{_missing(error)}, so this is not a pod with a service account; run the program "
            "in its own pod, with kubectl exec",
            httpx.codes.OK,  # no request has failed, so add no remedy for a request
        ) from error
    # Read the token each time, because the kubelet renews it.
    return (
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        lambda: (ACCOUNT / "token").read_text().strip(),
        verify,
    )


def _missing(error: KeyError | OSError) -> str:
    if isinstance(error, KeyError):
        return f"the environment variable {error.args[0]} is not set"
    return f"cannot read {ACCOUNT / 'ca.crt'}: {error.strerror}"


def in_cluster() -> Api:
    """Return a client of this cluster's API. Raises `KubernetesError` outside a cluster."""
    return Api(*credentials())
