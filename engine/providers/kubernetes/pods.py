"""Describe the pods of a workload: what they wait for, and why they do not start."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from engine.errors import EngineError
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.manifests import Kind, Manifest, Ref, at, metadata

POD: Final = Kind("v1", "Pod")
_EVENT: Final = Kind("v1", "Event")
_REPLICA_SET: Final = Kind("apps/v1", "ReplicaSet")

# Reasons of waiting containers that are usually permanent, each with the seconds to tolerate it: a
# registry may fail briefly, or a Secret may be created a moment later.
_HOPELESS_AFTER: Final = {
    "InvalidImageName": 0.0,
    "ErrImageNeverPull": 0.0,
    "ImageInspectError": 30.0,
    "ErrImagePull": 60.0,
    "ImagePullBackOff": 60.0,
    "CreateContainerConfigError": 60.0,
    "CreateContainerError": 60.0,
    "RunContainerError": 60.0,
}
_CRASHES: Final = 5  # restarts after which a container is treated as failed
_QUIET: Final = frozenset({"ContainerCreating", "PodInitializing", ""})
_PULLING: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
_PROVEN: Final = 10.0  # seconds after which a restarted container is treated as stable
_WRAPPED: Final = '": '
_USUAL_START: Final = 3.0  # seconds after which events explain a slow start
_LONGEST: Final = 300  # maximum characters of a server's message


@dataclass(frozen=True)
class Pods:
    """Pods of one workload, by name. For a Deployment, only the pods of the newest ReplicaSet."""

    api: Api
    items: tuple[Manifest, ...]

    @classmethod
    def of(cls, api: Api, owner: Manifest) -> Pods:
        """Return the pods that a workload controls; for a Pod, the pod itself."""
        if owner.get("kind") == "Pod":
            return cls(api, (owner,))
        selector = _selector(owner)
        if not selector:
            return cls(api, ())
        namespace = metadata(owner).get("namespace")
        found = api.objects(POD, namespace, labelSelector=selector)
        owners = {metadata(owner).get("uid")}
        if owner.get("kind") == "Deployment":
            owners = _newest_replica_set(api, owner, namespace, selector)
        mine = [pod for pod in found if _controller(pod) in owners]
        return cls(api, tuple(sorted(mine, key=lambda pod: str(metadata(pod)["name"]))))

    def note(self) -> str:
        """Return the first pod that is not ready and what it waits for, or "" if all are ready."""
        for pod in self._unready():
            line = self._busy_with(pod)
            if line:
                return f"{metadata(pod)['name']}: {line}"
        return ""

    def busy(self) -> str:
        return next((self._busy_with(pod) for pod in self._unready()), "")

    def _unready(self) -> Iterator[Manifest]:
        for pod in self.items:
            if not _is_ready(pod) and at(pod, ("status", "phase")) != "Succeeded":
                yield pod

    def failure(self) -> str:
        """Return why the workload cannot start, or "" if it may still start."""
        for pod in self.items:
            if not metadata(pod).get("deletionTimestamp"):
                for container in _containers(pod):
                    if _is_hopeless(pod, container):
                        return self._explained(pod, container)
        return ""

    def trouble(self) -> str:
        """Return the problem of the first pod that is not ready, even if it may be temporary."""
        failure = self.failure()
        if failure:
            return failure
        for pod in self._unready():
            for container in _containers(pod):
                if not container.get("ready") and (_last_exit(container) or _is_stuck(container)):
                    return self._explained(pod, container)
            line = self._busy_with(pod)
            return f"pod {_name(pod)}: {line}" if line else ""
        return ""

    def unproven(self) -> str:
        """Return a container that restarted after a crash less than ten seconds ago, or "".

        Without a readiness probe, Kubernetes reports such a container as ready until it crashes
        again.
        """
        for pod in self.items:
            for container in at(pod, ("status", "containerStatuses")) or []:
                started = at(container, ("state", "running", "startedAt"))
                proven = started and _since(started) >= _PROVEN
                if container.get("restartCount") and not proven:
                    return f"{container['name']} in {metadata(pod)['name']}"
        return ""

    def free_blocked(self, owner: Manifest) -> str:
        """Delete a broken pod of a StatefulSet's old revision. Return a note about it, or "".

        With the policy OrderedReady, the controller waits until this pod is ready before it
        replaces any pod. An update therefore cannot repair the pod (a documented limitation of
        StatefulSets).
        """
        wanted = at(owner, ("status", "updateRevision"))
        if at(owner, ("spec", "updateStrategy", "type")) == "OnDelete" or not wanted:
            return ""
        if at(owner, ("spec", "podManagementPolicy")) == "Parallel":
            return ""
        for pod in self.items:
            revision = at(pod, ("metadata", "labels", "controller-revision-hash"))
            if revision == wanted or metadata(pod).get("deletionTimestamp") or _is_ready(pod):
                continue
            if any(_waits_for(c) in _HOPELESS_AFTER or _crashes(c) for c in _containers(pod)):
                name = str(metadata(pod)["name"])
                self.api.delete(Ref(POD, metadata(pod)["namespace"], name), "Background")
                return (
                    f"deleted the broken pod {name} of the old revision, so that the StatefulSet"
                    " creates it again"
                )
        return ""

    def _busy_with(self, pod: Manifest) -> str:
        if metadata(pod).get("deletionTimestamp"):
            return "waiting for the pod to terminate"
        scheduled = _condition(pod, "PodScheduled")
        if scheduled.get("status") == "False":
            return f"{scheduled.get('reason')}: {_short(scheduled.get('message'))}"
        for container in _containers(pod):
            exited = _last_exit(container)
            if exited and not container.get("ready"):
                return f"{container['name']}: {exited}, {_restarts(container)}"
            if _is_stuck(container):
                return f"{container['name']}: {_waiting(container)}"
        for container in _containers(pod):
            if at(container, ("state", "running")) and not container.get("ready"):
                return f"waiting for the container {container['name']} to be ready"
        return self._starting(pod) if scheduled else ""

    def _starting(self, pod: Manifest) -> str:
        """Describe the pod's start. If it takes longer than usual, show the pod's last event."""
        if _age(pod) < _USUAL_START:
            return "starting"
        selector = f"involvedObject.uid={metadata(pod).get('uid')}"
        events: list[Manifest] = []
        # Events only add details: if the credentials may not read events, omit them.
        with contextlib.suppress(EngineError):
            namespace = metadata(pod).get("namespace")
            events = self.api.objects(_EVENT, namespace, fieldSelector=selector)
        events.sort(key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
        last = events[-1] if events else {}
        message = _short(last.get("message"))
        if last.get("type") == "Warning":
            return f"{last.get('reason')}: {message}"
        return message[:1].lower() + message[1:] if last.get("reason") == "Pulling" else "starting"

    def _explained(self, pod: Manifest, container: Manifest) -> str:
        """Return one line with pod, container, reason and the container's last log line."""
        line = f"pod {_name(pod)}, container {container['name']}"
        exited = _last_exit(container)
        if _is_stuck(container) and not (_crashes(container) and exited):
            line += f": {_waiting(container)}"
        elif _crashes(container):
            line += f": CrashLoopBackOff after {_restarts(container)}"
        if exited:
            line += f": {exited}; "
            last = self._last_line(pod, container)
            line += f"last log line: {_short(last)}" if last else "no log output"
        return line

    def _last_line(self, pod: Manifest, container: Manifest) -> str:
        namespace, name = metadata(pod)["namespace"], metadata(pod)["name"]
        over = at(container, ("state", "terminated")) is not None
        return self.api.log_tail(namespace, name, container["name"], previous=not over)


def _selector(owner: Manifest) -> str:
    selector = at(owner, ("spec", "selector")) or {}
    labels = selector.get("matchLabels") if "matchLabels" in selector else None
    if labels is None and owner.get("kind") == "ReplicationController":
        labels = selector
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def _newest_replica_set(
    api: Api, deployment: Manifest, namespace: Any, selector: str
) -> set[str | None]:
    sets = api.objects(_REPLICA_SET, namespace, labelSelector=selector)
    mine = [s for s in sets if _controller(s) == metadata(deployment).get("uid")]
    if not mine:
        return set()
    newest = max(mine, key=_revision)
    return {metadata(newest).get("uid")}


def _revision(replica_set: Manifest) -> int:
    text = str(at(replica_set, ("metadata", "annotations", "deployment.kubernetes.io/revision")))
    return int(text) if text.isdigit() else 0


def _controller(manifest: Manifest) -> str | None:
    for owner in metadata(manifest).get("ownerReferences") or []:
        if owner.get("controller"):
            uid: str = owner["uid"]
            return uid
    return None


def _condition(pod: Manifest, name: str) -> Manifest:
    conditions = at(pod, ("status", "conditions")) or []
    return next((c for c in conditions if c.get("type") == name), {})


def _is_ready(pod: Manifest) -> bool:
    return _condition(pod, "Ready").get("status") == "True"


def _containers(pod: Manifest) -> Iterator[Manifest]:
    for statuses in ("initContainerStatuses", "containerStatuses"):
        yield from at(pod, ("status", statuses)) or []


def _waits_for(container: Manifest) -> str:
    return str(at(container, ("state", "waiting", "reason")) or "")


def _crashes(container: Manifest) -> bool:
    return _waits_for(container) == "CrashLoopBackOff"


def _is_stuck(container: Manifest) -> bool:
    return _waits_for(container) not in _QUIET


def _waiting(container: Manifest) -> str:
    """Return why a container waits: the reason, and the details of the message."""
    message = str(at(container, ("state", "waiting", "message")) or "")
    if _waits_for(container) in _PULLING:
        # The registry and the runtime each add the image's name: show only the innermost error.
        message = f"{container.get('image')}: {message.rpartition(_WRAPPED)[2]}"
    return f"{_waits_for(container)}: {_short(message)}" if message else _waits_for(container)


def _restarts(container: Manifest) -> str:
    count = container.get("restartCount", 0)
    return f"{count} {'restart' if count == 1 else 'restarts'}"


def _name(pod: Manifest) -> str:
    return f"{metadata(pod)['namespace']}/{metadata(pod)['name']}"


def _is_hopeless(pod: Manifest, container: Manifest) -> bool:
    reason = _waits_for(container)
    if reason == "CrashLoopBackOff":
        return int(container.get("restartCount", 0)) >= _CRASHES
    patience = _HOPELESS_AFTER.get(reason)
    return patience is not None and _age(pod) >= patience


def _age(pod: Manifest) -> float:
    """Return the seconds since the pod was scheduled to its node."""
    return _since(_condition(pod, "PodScheduled").get("lastTransitionTime"))


def _since(timestamp: Any) -> float:
    """Return the seconds since one of the API's timestamps; 0 if it is missing."""
    try:
        return time.time() - datetime.fromisoformat(str(timestamp)).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


def _last_exit(container: Manifest) -> str:
    for state in ("state", "lastState"):
        ended = at(container, (state, "terminated"))
        if ended and ended.get("exitCode"):
            return f"{ended.get('reason')}, exit code {ended['exitCode']}"
    return ""


def _short(message: Any) -> str:
    text = " ".join(str(message or "").split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
