"""Queries to a cluster from this process; a `kubectl` process would cost ten times as much."""

import base64
import functools
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from kubernetes.stream.ws_client import ERROR_CHANNEL

from agents import kubernetes
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.cluster import find_cluster, read_settings
from engine.providers.kubernetes.manifests import Kind, Ref, is_pulumis
from tests.support.waiting import patience

KINDS = {
    "configmaps": Kind("v1", "ConfigMap"),
    "cronjobs": Kind("batch/v1", "CronJob"),
    "deployments": Kind("apps/v1", "Deployment"),
    "events": Kind("v1", "Event"),
    "jobs": Kind("batch/v1", "Job"),
    "nodes": Kind("v1", "Node"),
    "persistentvolumeclaims": Kind("v1", "PersistentVolumeClaim"),
    "pods": Kind("v1", "Pod"),
    "podmonitors": Kind("monitoring.coreos.com/v1", "PodMonitor"),
    "prometheusrules": Kind("monitoring.coreos.com/v1", "PrometheusRule"),
    "pv": Kind("v1", "PersistentVolume"),
    "secrets": Kind("v1", "Secret"),
    "servicemonitors": Kind("monitoring.coreos.com/v1", "ServiceMonitor"),
    "services": Kind("v1", "Service"),
    "statefulsets": Kind("apps/v1", "StatefulSet"),
    "volumesnapshots.snapshot.storage.k8s.io": Kind("snapshot.storage.k8s.io/v1", "VolumeSnapshot"),
}
"""Kinds by their names in kubectl."""
_CLUSTER_WIDE = {"nodes", "pv"}
_opening = threading.Lock()
"""Serializes `stream`, which temporarily replaces a method of its client."""


def objects(kubeconfig: Path, kinds: str, namespace: str, selector: str) -> list[dict[str, Any]]:
    """Return the objects of these kinds (as for `kubectl get`) that match a label selector.

    Raises ApiError and Unreachable.
    """
    api = _api(kubeconfig, kubeconfig.read_text())
    return [
        {"apiVersion": KINDS[kind].api_version, "kind": KINDS[kind].kind, **found}
        for kind in kinds.split(",")
        for found in api.objects(
            KINDS[kind],
            None if kind in _CLUSTER_WIDE else namespace,
            labelSelector=selector,
        )
    ]


def applied(
    kubeconfig: Path, kinds: Iterable[Kind], namespace: str
) -> dict[tuple[Kind, str], bool]:
    """Return which objects in a namespace a Pulumi engine manages, by kind and name.

    The value is True if an engine has set fields of the object. It is therefore False also for an
    object that an engine created without fields, such as an empty ConfigMap.

    Raises ApiError and Unreachable.
    """
    api = _api(kubeconfig, kubeconfig.read_text())
    return {
        (kind, found["metadata"]["name"]): is_pulumis(found)
        for kind in kinds
        for found in api.objects(kind, namespace)
    }


def find(kubeconfig: Path, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """Return one object, or None if it does not exist. Raises ApiError and Unreachable."""
    place = None if kind in _CLUSTER_WIDE else namespace
    return _api(kubeconfig, kubeconfig.read_text()).get(Ref(KINDS[kind], place, name))


def get(kubeconfig: Path, path: str) -> Any:
    """Return the API server's response for a path, like `kubectl get --raw`.

    Raises ApiError and Unreachable.
    """
    _, answer = _api(kubeconfig, kubeconfig.read_text()).request("GET", path)
    return answer


def as_account(kubeconfig: Path, token: str) -> kubernetes.Api:
    """Return the agents' client, with the rights of a service account's token."""
    (server,) = (one["cluster"] for one in yaml.safe_load(kubeconfig.read_text())["clusters"])
    authority = base64.b64decode(server["certificate-authority-data"]).decode()
    trusted = ssl.create_default_context(cadata=authority)
    return kubernetes.Api(server["server"], lambda: token, trusted)


@functools.cache
def _api(kubeconfig: Path, _content: str) -> Api:
    """Return a client. It is cached by the path of the kubeconfig and by its content, because the
    kubeconfig of a new cluster may have the same path."""
    return Api(find_cluster(read_settings({"kubeconfig": str(kubeconfig)})))


P = ParamSpec("P")
Answer: TypeAlias = subprocess.CompletedProcess[str]
_LOST: Final = "unable to start container process: waiting for init"
"""Part of runc's error if the process ended before it ran the command."""


def _again_if_lost(run: Callable[P, Answer]) -> Callable[P, Answer]:
    """Repeat a command once if runc lost the command's process, as happens on a busy machine."""

    @functools.wraps(run)
    def twice(*args: P.args, **options: P.kwargs) -> Answer:
        answer = run(*args, **options)
        return run(*args, **options) if answer.returncode and _LOST in answer.stderr else answer

    return twice


@_again_if_lost
def run(
    kubeconfig: Path,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    timeout: float,
) -> Answer:
    """Run a command in a container.

    If the command cannot start, the exit code is 1, and stderr has the reason.

    Raises TimeoutExpired after `timeout` seconds, or more on a slow machine (`patience`).
    """
    limit = timeout * patience()
    try:
        with _opening:
            session = stream(
                _core(kubeconfig, kubeconfig.read_text()).connect_get_namespaced_pod_exec,
                pod,
                namespace,
                container=container,
                command=list(command),
                stdout=True,
                stderr=True,
                _preload_content=False,
            )
    except ApiException as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
    session.run_forever(timeout=limit)
    if session.is_open():
        session.close()
        raise subprocess.TimeoutExpired(command, limit)
    status = yaml.safe_load(session.read_channel(ERROR_CHANNEL)) or {}
    out, errors = session.read_stdout(), session.read_stderr()
    if status.get("status") == "Success":
        return subprocess.CompletedProcess(command, 0, out, errors)
    causes = {
        c.get("reason"): c.get("message") for c in status.get("details", {}).get("causes", [])
    }
    code = int(causes.get("ExitCode", 1))
    return subprocess.CompletedProcess(command, code, out, errors or str(status.get("message")))


@functools.cache
def _core(kubeconfig: Path, _content: str) -> client.CoreV1Api:
    """Create a separate client, because `stream` makes it unusable for other requests."""
    settings = client.Configuration()
    config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=str(kubeconfig), client_configuration=settings
    )
    settings.proxy = None
    return client.CoreV1Api(client.ApiClient(settings))
