"""Read the provider's config and its kubeconfig, without a Kubernetes client.

The client's package takes a third of a second to import, and a preview without changes does not
need this package. This module needs only the kubeconfig to find the default namespace, and to check
whether the cluster is reachable.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from engine.errors import Absent, EngineError
from engine.values import Properties, Unknown

_CONNECT_SECONDS: Final = 5.0
_INLINE: Final = "the provider's kubeconfig"
_POD: Final = "this pod's service account"
_LONGEST_PATH: Final = 100
_LOCAL_HINT: Final = "start the local cluster with `make up`"


@dataclass(frozen=True)
class Settings:
    """The provider's config, with the same meaning as for Pulumi's Kubernetes provider."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    config_map_mutable: bool
    secret_mutable: bool
    delete_unreachable: bool
    upsert: bool
    patch_force: bool
    known: bool  # whether kubeconfig and context are known; False if the cluster is still planned


def read_settings(config: Properties) -> Settings:
    """Read the provider's config. Raises EngineError that names an unsupported or invalid key.

    Keys that only tune Pulumi's own plugin (its client, its warnings, Helm) are ignored.
    """
    if _flag(config, "enableServerSideApply", default=True) is False:
        raise EngineError(
            "kubernetes provider: enableServerSideApply: false: this engine supports only"
            " server-side apply; remove this key"
        )
    if config.get("renderYamlToDirectory"):
        raise EngineError(
            "kubernetes provider: renderYamlToDirectory: this engine cannot render objects to"
            " files; remove this key, or deploy this stack with the `pulumi` command"
        )
    if _flag(config, "strictMode"):
        for key in ("kubeconfig", "context"):
            if not config.get(key):
                raise EngineError(
                    f"kubernetes provider: {key}: is required with strictMode: true; set {key}, or"
                    " remove strictMode"
                )
    identity = (config.get("kubeconfig"), config.get("context"))
    return Settings(
        kubeconfig=_text(config, "kubeconfig"),
        context=_text(config, "context"),
        namespace=_text(config, "namespace"),
        config_map_mutable=_flag(config, "enableConfigMapMutable"),
        secret_mutable=_flag(config, "enableSecretMutable"),
        delete_unreachable=_flag(config, "deleteUnreachable"),
        upsert=_flag(config, "upsertExistingObjects"),
        patch_force=_flag(config, "enablePatchForce"),
        known=not any(isinstance(value, Unknown) for value in identity),
    )


def _flag(config: Properties, key: str, default: bool = False) -> bool:
    value, source = config.get(key), key
    if value is None:
        source = _variable(key)
        value = os.environ.get(source, default)
    if isinstance(value, Unknown):
        return default
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise EngineError(f"kubernetes provider: {source}: {value!r}: expected true or false")


def _variable(key: str) -> str:
    """Return the environment variable of a key: PULUMI_K8S_STRICT_MODE for strictMode."""
    words = key.replace("ConfigMap", "Configmap")  # Pulumi's variables treat ConfigMap as one word
    return "PULUMI_K8S_" + "".join(f"_{c}" if c.isupper() else c.upper() for c in words)


def _text(config: Properties, key: str) -> str | None:
    value = config.get(key)
    if value is None or value == "" or isinstance(value, Unknown):
        return None
    if isinstance(value, dict):
        return yaml.safe_dump(value)  # a kubeconfig may be given as an object
    if not isinstance(value, str):
        raise EngineError(f"kubernetes provider: {key}: {value!r}: expected text")
    return value


@dataclass(frozen=True)
class Cluster:
    """One cluster from a kubeconfig. ``document`` is None if the engine runs in the cluster."""

    document: Mapping[str, Any] | None
    context: str | None
    server: str
    namespace: str
    proxied: bool
    source: str
    """Where the kubeconfig is, for messages: its path, several paths, or a description."""


def find_cluster(settings: Settings) -> Cluster:
    """Return the cluster that the settings describe.

    Raises `Absent` if the kubeconfig or its context does not exist. Raises `EngineError` if the
    kubeconfig is invalid. The messages name the file and the remedy.
    """
    if settings.kubeconfig is None:
        found = _ambient()
        if found is None:
            return _in_pod(settings)
        document, source = found
    else:
        document, source = _given(settings.kubeconfig)
    context_name = settings.context or document.get("current-context") or None
    context = _entry(document, "contexts", "context", context_name, source)
    cluster = _entry(document, "clusters", "cluster", context.get("cluster"), source)
    server = str(cluster.get("server", ""))
    return Cluster(
        document,
        context_name,
        server,
        settings.namespace or str(context.get("namespace") or "default"),
        bool(cluster.get("proxy-url")) or (_has_proxy() and not is_loopback(server)),
        source,
    )


def _given(text: str) -> tuple[dict[str, Any], str]:
    """Return the kubeconfig and its source; ``text`` is either its path or its contents."""
    path = Path(text).expanduser() if len(text) < os.pathconf("/", "PC_PATH_MAX") else None
    if path is not None and "\n" not in text and path.is_file():
        return _read(path)
    text = text.strip()
    if "\n" in text or "{" in text:
        document = _parsed(text, _INLINE)
        if not isinstance(document, dict):
            # Do not show the text: it may contain credentials.
            raise EngineError(
                f"kubeconfig: {_INLINE}: expected YAML with clusters, contexts and users; set the"
                " key to the path of a kubeconfig or to its contents"
            )
        return _with_absolute_paths(document, Path.cwd()), _INLINE
    raise Absent(
        "kubeconfig",
        f"kubeconfig: {_path_shown(text)} does not exist (relative to {Path.cwd()}); set the key to"
        " the path of a kubeconfig or to its contents, or run `make up` for a local cluster",
    )


def _path_shown(text: str) -> str:
    """Return the text if it looks like a path. Otherwise, return a placeholder.

    A text that is no path may be the contents of a kubeconfig, which must not be shown.
    """
    is_path = len(text) <= _LONGEST_PATH or "/" in text[:_LONGEST_PATH]
    return text if is_path and len(text) < 4 * _LONGEST_PATH else "the given text"


def _ambient() -> tuple[dict[str, Any], str] | None:
    listed = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    existing = [path for path in listed or [Path.home() / ".kube" / "config"] if path.is_file()]
    if not existing:
        if listed:
            raise Absent(
                "kubeconfig",
                f"KUBECONFIG: {listed[0]} does not exist; set this variable to the path of a"
                " kubeconfig",
            )
        return None
    merged: dict[str, Any] = {}
    for path in existing:
        document, _ = _read(path)
        for key, value in document.items():
            if isinstance(value, list):
                merged.setdefault(key, []).extend(value)
            else:
                merged.setdefault(key, value)
    return merged, os.pathsep.join(map(str, existing))


def _in_pod(settings: Settings) -> Cluster:
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if host is None:
        raise Absent(
            "kubeconfig",
            "kubernetes provider: no kubeconfig found; set the provider's key `kubeconfig` or the"
            " variable KUBECONFIG, or run `make up` for a local cluster",
        )
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    mounted = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    namespace = mounted.read_text().strip() if mounted.is_file() else "default"
    server = f"https://{host}:{port}"
    return Cluster(None, None, server, settings.namespace or namespace, False, _POD)


def _read(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(
            f"kubeconfig: {path} cannot be read: {error}; check its permissions and contents"
        ) from error
    document = _parsed(text, str(path))
    if not isinstance(document, dict):
        raise EngineError(
            f"kubeconfig: {path} is not a kubeconfig: expected YAML with clusters, contexts and"
            " users; name another file"
        )
    return _with_absolute_paths(document, path.absolute().parent), str(path)


_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def _with_absolute_paths(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """Make the paths in a kubeconfig absolute. They are relative to the kubeconfig's directory."""
    sections = (*(document.get("clusters") or []), *(document.get("users") or []))
    for entry in sections:
        fields = entry.get("cluster") or entry.get("user") or {}
        for key in _FILES:
            if fields.get(key):
                fields[key] = str(base / fields[key])
    return document


def _parsed(text: str, source: str) -> Any:
    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe
    except yaml.YAMLError as error:
        # The text may contain credentials: report only the line's number.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise EngineError(
            f"kubeconfig: {source} is not valid YAML{where}; correct this kubeconfig"
        ) from error


def _entry(
    document: Mapping[str, Any], section: str, field: str, name: Any, source: str
) -> Mapping[str, Any]:
    entries = document.get(section) or []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry.get(field) or {}
    names = ", ".join(str(e.get("name")) for e in entries if isinstance(e, dict)) or "none"
    if field != "context":
        raise EngineError(
            f"kubeconfig: {source}: no {field} named {name!r} (found: {names}); correct"
            " the name in this kubeconfig"
        )
    problem = (
        f"{name}: {source} has no such context" if name else f"{source} has no current context"
    )
    raise Absent(field, f"context: {problem} (found: {names}); set the context to one of these")


def is_loopback(server: str) -> bool:
    """Return whether a server is on this host. The engine never uses a proxy for such a server."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _has_proxy() -> bool:
    return any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy"))


def unreachable(cluster: Cluster) -> str | None:
    """Return why the cluster does not answer.

    Return None if the cluster answers, or if a proxy may be in between.
    """
    if cluster.proxied:
        return None
    address = urlsplit(cluster.server)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        with socket.create_connection((address.hostname or "", port), timeout=_CONNECT_SECONDS):
            return None
    except OSError as error:
        return describe_unreachable(cluster.server, error)


def describe_unreachable(server: str, error: BaseException) -> str:
    reason = _reason(error)
    check = "check that the cluster runs, and that this host can reach its address"
    hint = _LOCAL_HINT if is_loopback(server) else check
    return f"the Kubernetes cluster is not reachable at {server}: {reason}; {hint}"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "the host name does not resolve"
    return str(getattr(error, "strerror", None) or error).lower()
