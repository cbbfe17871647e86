"""Send requests to the Kubernetes API with the official client.

This module retries requests, turns errors into one line, and finds the paths of kinds. Objects stay
plain JSON, because the client has models only for the built-in kinds.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from engine.errors import EngineError
from engine.providers.kubernetes.cluster import Cluster, describe_unreachable, is_loopback
from engine.providers.kubernetes.manifests import Kind, Manifest, Ref, is_namespaced

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

_TIMEOUTS: Final = (10.0, 60.0)  # seconds to connect, seconds to read
_ATTEMPTS: Final = 6
_FIRST_PAUSE: Final = 0.2  # seconds; doubles with each retry
_TRANSIENT: Final = frozenset({429, 502, 503, 504})
_TRANSIENT_TEXTS: Final = ("etcdserver", "leader changed", "connection refused", "try again")
_POOL: Final = 64
_LONGEST_CAUSE: Final = 180  # characters
_DISCOVERY_SECONDS: Final = 15.0


class ApiError(EngineError):
    """The API server refused a request. ``status`` is the HTTP status, ``body`` a Status object."""

    def __init__(self, message: str, status: int, body: Manifest) -> None:
        super().__init__(message)
        self.status = status
        self.body = body

    @property
    def missing(self) -> bool:
        """Whether the server does not have the object or its kind."""
        return self.status == 404

    @property
    def unauthorized(self) -> bool:
        """Whether the credentials lack a right; False if the server refuses the object itself."""
        message = str(self.body.get("message")).lower()
        return self.status == 403 and ': user "' in message


class Unreachable(EngineError):  # noqa: N818 - named for the cluster's state
    """The API server does not answer."""


@dataclass(frozen=True)
class Location:
    """How paths of the API name a kind: its plural, and whether its objects have a namespace."""

    kind: Kind
    plural: str
    namespaced: bool


class Api:
    """The API of one cluster. All threads share this object and its connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = _connect(cluster)
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[str, Location]] = {}
        self._answered = False

    # -- requests -----------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        about: str = "",
    ) -> tuple[int, Any]:
        """Send a request, and retry it after transient errors. Return HTTP status and JSON answer.

        ``about`` names the object in errors. Raises ApiError and Unreachable.
        """
        pause = _FIRST_PAUSE
        for left in reversed(range(_ATTEMPTS)):
            try:
                status, answer, retry_after = self._send(method, path, query, body, content_type)
            except OSError as error:
                # If the server has never answered yet, do not retry: the address may be wrong.
                if not left or not self._answered:
                    raise self._unreachable(error) from error
            else:
                self._answered = True
                if 200 <= status < 300:
                    return status, answer
                if not left or not _is_transient(status, answer):
                    raise ApiError(explain(status, answer, about), status, answer)
                pause = max(pause, retry_after)
            time.sleep(pause)
            pause *= 2
        raise AssertionError("the last attempt has returned or raised")

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str,
    ) -> tuple[int, Any, float]:
        response = self._open(method, path, query, body, content_type, _TIMEOUTS)
        try:
            raw = response.read()
        except Exception as error:
            raise _as_os_error(error) from error
        finally:
            response.response.release_conn()
        wait = response.getheader("Retry-After") or "0"
        return response.status, _decoded(raw), float(wait) if wait.isdigit() else 0.0

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        timeouts: tuple[float, float],
    ) -> Any:
        resource = f"{path}?{urlencode(query)}" if query else path
        call = self._client.param_serialize(
            method,
            resource,
            query_params=[],
            header_params={"Accept": "application/json, */*", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            return self._client.call_api(*call, _request_timeout=timeouts)
        except Exception as error:
            raise _as_os_error(error) from error

    def _unreachable(self, error: OSError) -> Unreachable:
        return Unreachable(describe_unreachable(self._cluster.server, error))

    # -- kinds --------------------------------------------------------------------------------

    def location(self, kind: Kind) -> Location | None:
        """Return the location of a kind's objects, or None if the server does not have the kind."""
        with self._lock:
            known = self._kinds.get(kind.api_version, {}).get(kind.kind)
        return known or self._discover(kind.api_version).get(kind.kind)

    def await_kind(self, kind: Kind, cancelled: threading.Event) -> None:
        """Wait for a short time until the server has a custom kind.

        Its CustomResourceDefinition may have been created a moment ago.
        """
        deadline = time.monotonic() + (_DISCOVERY_SECONDS if is_namespaced(kind) is None else 0.0)
        while self.location(kind) is None and time.monotonic() < deadline:
            if cancelled.wait(0.5):
                return

    def _discover(self, api_version: str) -> dict[str, Location]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            _, answer = self.request("GET", path)
        except ApiError as error:
            if error.missing:
                return {}
            raise
        found = {
            entry["kind"]: Location(
                Kind(api_version, entry["kind"]), entry["name"], bool(entry["namespaced"])
            )
            for entry in answer.get("resources", [])
            if "/" not in entry["name"]
        }
        with self._lock:
            self._kinds[api_version] = found
        return found

    def namespaced(self, kind: Kind) -> bool:
        """Return whether a kind is namespaced; True for a kind that does not exist yet."""
        known = is_namespaced(kind)
        if known is not None:
            return known
        location = self.location(kind)
        return location is None or location.namespaced

    def path(self, ref: Ref, name: bool = True) -> str:
        """Return the path of an object; without ``name``, the path of its collection.

        Raises ApiError (404) if the server does not have the kind.
        """
        location = self.location(ref.kind)
        if location is None:
            raise ApiError(
                f"{ref}: the cluster does not have the kind {ref.kind}; create its"
                " CustomResourceDefinition before this object",
                404,
                {"reason": "NoMatch"},
            )
        root = "/apis/" if ref.kind.group else "/api/"
        middle = f"/namespaces/{quote(ref.namespace)}" if ref.namespace else ""
        end = f"/{quote(ref.name)}" if name else ""
        return f"{root}{ref.kind.api_version}{middle}/{location.plural}{end}"

    # -- objects ------------------------------------------------------------------------------

    def get(self, ref: Ref) -> Manifest | None:
        try:
            _, answer = self.request("GET", self.path(ref), about=str(ref))
        except ApiError as error:
            if error.missing:
                return None
            raise
        live: Manifest = answer
        return live

    def objects(self, kind: Kind, namespace: str | None, **query: str) -> list[Manifest]:
        """Return the objects of a kind; ``query`` may contain a ``labelSelector``."""
        ref = Ref(kind, namespace, "")
        _, answer = self.request("GET", self.path(ref, name=False), query=query, about=str(kind))
        items: list[Manifest] = answer.get("items") or []
        return items

    def apply(
        self, ref: Ref, manifest: Manifest, manager: str, *, force: bool, dry_run: bool = False
    ) -> Manifest:
        """Apply the manifest with server-side apply. The server refuses unknown fields."""
        query = {
            "fieldManager": manager,
            "fieldValidation": "Strict",
            "force": "true" if force else "false",
        }
        if dry_run:
            query["dryRun"] = "All"
        _, answer = self.request(
            "PATCH",
            self.path(ref),
            query=query,
            body=json.dumps(manifest),
            content_type="application/apply-patch+yaml",
            about=str(ref),
        )
        live: Manifest = answer
        return live

    def set_managed_fields(self, ref: Ref, live: Manifest, entries: list[Manifest]) -> Manifest:
        """Replace an object's ``managedFields``. Raises ApiError if the object has changed."""
        patch = [
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": live["metadata"]["resourceVersion"],
            },
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        ]
        _, answer = self.request(
            "PATCH",
            self.path(ref),
            body=patch,
            content_type="application/json-patch+json",
            about=str(ref),
        )
        changed: Manifest = answer
        return changed

    def delete(self, ref: Ref, propagation: str) -> None:
        """Request an object's deletion; a missing object is not an error."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        try:
            self.request("DELETE", self.path(ref), body=options, about=str(ref))
        except ApiError as error:
            if not error.missing:
                raise

    def log_tail(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        """Return the last log line of a container, or "" if the log is empty or unavailable."""
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"
        query = {"container": container, "tailLines": "5"}
        if previous:
            query["previous"] = "true"
        try:
            _, text = self.request("GET", path, query=query)
        except EngineError:
            return ""
        lines = [line.strip() for line in str(text or "").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    @contextlib.contextmanager
    def watching(self, ref: Ref) -> Iterator[threading.Event]:
        """Yield an event that is set whenever the object changes.

        The watch only shortens a wait. The caller must also poll, because the watch may fail.
        """
        changed = threading.Event()
        stop = threading.Event()
        watch = _Watch(self, ref, changed, stop)
        watch.start()
        try:
            yield changed
        finally:
            stop.set()
            watch.close()


class _Watch(threading.Thread):
    """Follows one object and reports each change."""

    def __init__(self, api: Api, ref: Ref, changed: threading.Event, stop: threading.Event) -> None:
        super().__init__(name=f"watch {ref}", daemon=True)
        self._api, self._ref, self._changed, self._stopped = api, ref, changed, stop
        self._response: Any = None

    def run(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(EngineError, OSError):
                self._follow()
            self._stopped.wait(2.0)

    def _follow(self) -> None:
        query = {"watch": "true", "fieldSelector": f"metadata.name={self._ref.name}"}
        path = self._api.path(self._ref, name=False)
        # Let the server end a quiet watch before the client's read times out (300 s).
        query["timeoutSeconds"] = "240"
        response = self._api._open("GET", path, query, None, "application/json", (10.0, 300.0))
        self._response = response.response
        try:
            for _ in response.response.stream(65536):
                self._changed.set()
                if self._stopped.is_set():
                    return
        except Exception as error:
            raise _as_os_error(error) from error
        finally:
            response.response.close()

    def close(self) -> None:
        """Interrupt the thread's read."""
        response = self._response
        if response is not None:
            with contextlib.suppress(Exception):
                response.shutdown()


def _connect(cluster: Cluster) -> ApiClient:
    from kubernetes import config
    from kubernetes.client import ApiClient, Configuration

    settings = Configuration()
    # Disable retries of the client. `Api.request` retries, and knows which errors are transient.
    settings.retries = False
    settings.connection_pool_maxsize = _POOL
    try:
        if cluster.document is None:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=settings
            )
        else:
            config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
                dict(cluster.document), context=cluster.context, client_configuration=settings
            )
    except config.ConfigException as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise EngineError(
            f"kubeconfig: {cluster.source}: {text}; correct this kubeconfig, or the file that it"
            " names"
            if cluster.document is not None
            else f"kubernetes provider: {cluster.source}: {text}; mount the token of a service"
            " account in this pod, or set the provider's key `kubeconfig`"
        ) from error
    if is_loopback(cluster.server):
        settings.proxy = None
    return ApiClient(settings)


def _as_os_error(error: Exception) -> OSError:
    """Return the operating system's error that caused an error of the HTTP client."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and type(cause) is not OSError:
            return cause
        cause = cause.__cause__ or cause.__context__ or getattr(cause, "reason", None)
        if not isinstance(cause, BaseException):
            break
    return ConnectionError(" ".join(str(error).split()))


def _decoded(raw: bytes) -> Any:
    text = raw.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_transient(status: int, answer: Any) -> bool:
    if status in _TRANSIENT:
        return True
    message = str(answer.get("message", "")) if isinstance(answer, dict) else ""
    return status == 500 and any(text in message for text in _TRANSIENT_TEXTS)


def explain(status: int, answer: Any, about: str) -> str:
    """Return the server's message in one line, with the object and the remedy."""
    body: Manifest = answer if isinstance(answer, dict) else {"message": str(answer)}
    message = " ".join(str(body.get("message") or f"HTTP status {status}").split())
    reason = str(body.get("reason") or "")
    prefix = f"{about}: " if about else ""
    if reason == "Conflict" or status == 409:
        return prefix + _explain_conflict(body, message, reason)
    if status == 401:
        return prefix + (
            "the cluster rejects the credentials in the kubeconfig; renew these credentials,"
            " then deploy again"
        )
    if status == 403:
        return prefix + message
    if status == 404 and body.get("details", {}).get("kind") == "namespaces":
        name = body["details"].get("name")
        return prefix + (
            f"namespace {name!r} does not exist; create the namespace before this object"
        )
    details = body.get("details") or {}
    if reason == "Invalid" and details.get("causes"):
        hidden = details.get("kind") == "Secret"
        return prefix + "; ".join(_explain_cause(cause, hidden) for cause in details["causes"])
    return prefix + _without_object(message)


def _explain_cause(cause: Manifest, hidden: bool) -> str:
    """Return field, value and reason of a cause; for a Secret, only the field.

    The cause's message starts with the value, which can be kilobytes, and ends with the reason.
    """
    text = "invalid value" if hidden else " ".join(str(cause.get("message")).split())
    if len(text) > _LONGEST_CAUSE:
        text = f"{text[:60]} … {text[60 - _LONGEST_CAUSE :]}"
    return f"{cause.get('field')}: {text}"


def _explain_conflict(body: Manifest, message: str, reason: str) -> str:
    causes = body.get("details", {}).get("causes") or []
    owned = [c for c in causes if c.get("reason") == "FieldManagerConflict"]
    if not owned:
        return message
    fields = ", ".join(f"{str(c.get('field', '')).lstrip('.')} ({c['message']})" for c in owned)
    return (
        f"another client set these fields: {fields}; remove the fields from the program, or take"
        ' them over with the annotation pulumi.com/patchForce: "true"'
    )


_SCHEMA_ERROR: Final = re.compile(
    r"failed to (?:create typed patch object|convert new object) \(.*?Kind=\w+\)"
    r"(?: to proper version)?: (?:errors: )?"
)
_SHOWN_VALUE: Final = re.compile(r", got &value\.\S*")


def _without_object(message: str) -> str:
    """Return a message without the object and its values, which may be secret."""
    brief = _SCHEMA_ERROR.sub("the object does not match the schema of its kind: ", message)
    return _SHOWN_VALUE.sub("", brief)
