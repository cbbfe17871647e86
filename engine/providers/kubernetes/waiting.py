"""Wait until an object is ready or deleted. On failure, report the reason in one line.

A check reads the live object. Through ``Around``, it also reads related objects, such as pods. The
loop decides when to check again. The criteria for each kind are those of Pulumi's provider.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.errors import EngineError
from engine.providers import Operation
from engine.providers.kubernetes.api import Api
from engine.providers.kubernetes.manifests import (
    SKIP_AWAIT,
    TIMEOUT,
    WAIT_FOR,
    Kind,
    Manifest,
    Ref,
    annotation,
    at,
    is_true,
    metadata,
)
from engine.providers.kubernetes.pods import Pods

DEFAULT_TIMEOUT: Final = 600.0  # seconds
_POLL: Final = 1.0  # seconds between checks without an event
_TICK: Final = 0.1  # seconds between checks whether the user has cancelled
# Seconds of the first pauses, which are short because many objects are ready soon.
_FIRST_LOOKS: Final = (0.02, 0.05, 0.1, 0.2, 0.4)


class NotReady(EngineError):  # noqa: N818 - named for the object's state
    """The object exists but is not ready; ``live`` is its last known state."""

    def __init__(self, reason: str, live: Manifest, cancelled: bool = False) -> None:
        super().__init__(reason)
        self.live = live
        self.cancelled = cancelled


@dataclass(frozen=True)
class Progress:
    """The result of one check.

    ``note`` and ``detail`` say what the object still waits for; ``failure`` is a permanent failure.
    """

    done: bool = False
    note: str = ""
    detail: str = ""
    failure: str = ""

    def __str__(self) -> str:
        return f"{self.note}: {self.detail}" if self.detail else self.note


DONE: Final = Progress(done=True)


@dataclass(frozen=True)
class Around:
    """Access to objects that are related to the checked object, such as its pods."""

    api: Api
    ref: Ref
    created: bool  # created in this operation, not updated

    def objects(self, kind: Kind, **query: str) -> list[Manifest]:
        """Return the objects of a kind in the object's namespace."""
        return self.api.objects(kind, self.ref.namespace, **query)

    def pods(self, live: Manifest) -> Pods:
        """Return the pods that a workload controls."""
        return Pods.of(self.api, live)


Check: TypeAlias = Callable[[Manifest, Around], Progress]


def timeout_of(op: Operation, inputs: Mapping[str, Any]) -> float:
    """Return the seconds to wait.

    They are from the option customTimeouts, else from the annotation `TIMEOUT`, else 600.
    """
    if op.timeout > 0:
        return op.timeout
    text = annotation(inputs, TIMEOUT)
    return float(text) if text.isdigit() else DEFAULT_TIMEOUT


def until_ready(
    api: Api, ref: Ref, live: Manifest, inputs: Mapping[str, Any], op: Operation, *, created: bool
) -> Manifest:
    """Wait until the object is ready, and return it. Raises NotReady."""
    check = check_for(ref.kind, inputs)
    around = Around(api, ref, created)
    progress = check(live, around)
    if progress.done:
        return live
    deadline = time.monotonic() + timeout_of(op, inputs)
    looks = iter(_FIRST_LOOKS)
    with api.watching(ref) as changed, _Status(op) as status:
        while not progress.done:
            status.show(str(progress))
            if progress.failure:
                raise NotReady(f"{ref}: {progress.failure}", live)
            if time.monotonic() >= deadline:
                raise NotReady(_timed_out(ref, op, inputs, progress, live, around), live)
            if not _pause(changed, op, next(looks, _POLL)):
                raise NotReady(f"{ref}: cancelled: {progress}", live, cancelled=True)
            seen = api.get(ref)
            if seen is None:
                raise NotReady(
                    f"{ref}: another client deleted the object before it was ready; deploy"
                    " again, to create the object again",
                    live,
                )
            live = seen
            progress = check(live, around)
    return live


def until_gone(
    api: Api, ref: Ref, uid: str | None, inputs: Mapping[str, Any], op: Operation
) -> None:
    """Wait until the object with this uid is gone. Raises NotReady."""
    deadline = time.monotonic() + timeout_of(op, inputs)
    looks = iter(_FIRST_LOOKS)
    live = api.get(ref)
    if live is None or metadata(live).get("uid") != uid:
        return
    with api.watching(ref) as changed, _Status(op) as status:
        while live is not None and metadata(live).get("uid") == uid:
            note = _why_still_there(api, live)
            status.show(note)
            if time.monotonic() >= deadline:
                raise NotReady(
                    f"{ref}: still exists {_seconds(op, inputs)} after the request to delete"
                    f" it: {note}; find out what prevents the deletion with `kubectl"
                    " describe`, then run the command again",
                    live,
                )
            if not _pause(changed, op, next(looks, _POLL)):
                raise NotReady(f"{ref}: cancelled: {note}", live, cancelled=True)
            live = api.get(ref)


class _Status:
    """The status line: shown when it changes, cleared at the end."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        self._shown = ""

    def __enter__(self) -> _Status:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")

    def show(self, line: str) -> None:
        if line != self._shown:
            self._shown = line
            self._op.status(line)


def has_failed(live: Manifest) -> bool:
    """Return whether an object has failed permanently and must be created again."""
    if live.get("kind") == "Job":
        return _condition(live, "Failed").get("status") == "True"
    return live.get("kind") == "Pod" and at(live, ("status", "phase")) == "Failed"


def _pause(changed: Any, op: Operation, seconds: float) -> bool:
    """Wait for a change, at most ``seconds``; return False if the user has cancelled."""
    end = time.monotonic() + seconds
    while not op.cancelled.is_set():
        remaining = end - time.monotonic()
        if remaining <= 0 or changed.wait(min(remaining, _TICK)):
            changed.clear()
            return True
    return False


def _seconds(op: Operation, inputs: Mapping[str, Any]) -> str:
    return f"{timeout_of(op, inputs):g} s"


def _timed_out(
    ref: Ref,
    op: Operation,
    inputs: Mapping[str, Any],
    progress: Progress,
    live: Manifest,
    around: Around,
) -> str:
    trouble = around.pods(live).trouble() if ref.kind.kind in _WITH_PODS else ""
    why = trouble or progress.detail
    line = f"{ref}: not ready after {_seconds(op, inputs)}: {progress.note}"
    remedy = "fix the cause, then deploy again: the engine then continues to wait for this object"
    return f"{line}; {why}; {remedy}" if why else f"{line}; {remedy}"


def _why_still_there(api: Api, live: Manifest) -> str:
    meta = metadata(live)
    if live.get("kind") == "Namespace":
        for condition in at(live, ("status", "conditions")) or []:
            if condition.get("status") == "True" and "Remaining" in condition.get("type", ""):
                return f"waiting for the objects in the namespace: {condition.get('message', '')}"
    finalizers = [name for name in meta.get("finalizers") or [] if name != "foregroundDeletion"]
    if finalizers:
        return f"waiting until controllers remove the finalizers: {', '.join(finalizers)}"
    if live.get("kind") in _WITH_PODS and live.get("kind") != "Pod":
        left = len(Pods.of(api, live).items)
        if left:
            return f"waiting for {left} {'pod' if left == 1 else 'pods'} to terminate"
    return "waiting until Kubernetes has deleted the object"


# ---------------------------------------------------------------------------------------------
# Criteria for readiness


def check_for(kind: Kind, inputs: Mapping[str, Any]) -> Check:
    """Return the check for a kind of object, or the check that an annotation requires."""
    if is_true(inputs, SKIP_AWAIT):
        return lambda _live, _around: DONE
    wanted = annotation(inputs, WAIT_FOR)
    if wanted:
        return _custom(wanted)
    return _CHECKS.get((kind.group, kind.kind), lambda _live, _around: DONE)


def _observed(live: Manifest) -> bool:
    """Return whether the controller has seen the latest generation. If not, its status is old."""
    generation = metadata(live).get("generation", 0)
    return bool(_number(live, "status", "observedGeneration") >= generation)


def _number(live: Manifest, *path: str, default: int = 0) -> int:
    value = at(live, path)
    return value if isinstance(value, int) else default


def _condition(live: Manifest, name: str) -> Manifest:
    conditions = at(live, ("status", "conditions")) or []
    return next((c for c in conditions if c.get("type") == name), {})


def _rollout(
    live: Manifest, around: Around, done: int, wanted: int, what: str = "ready"
) -> Progress:
    """Return why a workload has too few ready pods: what it waits for, or its failure."""
    pods = around.pods(live)
    return Progress(
        note=f"{done} of {wanted} pods {what}", detail=pods.note(), failure=pods.failure()
    )


def _up(live: Manifest, around: Around) -> Progress:
    """Report the workload as ready, unless one of its containers crashed and has just restarted."""
    unproven = around.pods(live).unproven()
    note = f"waiting to see whether the restarted container {unproven} keeps running"
    return Progress(note=note) if unproven else DONE


def _deployment(live: Manifest, around: Around) -> Progress:
    wanted = _number(live, "spec", "replicas", default=1)
    updated = _number(live, "status", "updatedReplicas")
    available = _number(live, "status", "availableReplicas")
    if _observed(live):
        progressing = _condition(live, "Progressing")
        if progressing.get("reason") == "ProgressDeadlineExceeded":
            trouble = around.pods(live).trouble()
            return Progress(failure=trouble or str(progressing.get("message", "")))
        old = _number(live, "status", "replicas") - updated
        if updated >= wanted and available >= wanted and old <= 0:
            return _up(live, around)
    return _rollout(live, around, min(updated, available), wanted)


def _stateful_set(live: Manifest, around: Around) -> Progress:
    wanted = _number(live, "spec", "replicas", default=1)
    ready = _number(live, "status", "readyReplicas")
    if _observed(live) and _stateful_set_done(live, wanted, ready):
        return _up(live, around)
    if ready < wanted or not _observed(live):
        progress = _rollout(live, around, ready, wanted)
    else:
        updated = _number(live, "status", "updatedReplicas")
        progress = _rollout(live, around, updated, wanted, "updated")
    freed = "" if around.created else around.pods(live).free_blocked(live)
    return Progress(note=freed) if freed else progress


def _stateful_set_done(live: Manifest, wanted: int, ready: int) -> bool:
    if ready < wanted or _number(live, "status", "replicas") != wanted:
        return False
    strategy = at(live, ("spec", "updateStrategy")) or {}
    if strategy.get("type") == "OnDelete":
        return True  # the controller replaces only pods that the user deletes
    partition = _number(live, "spec", "updateStrategy", "rollingUpdate", "partition")
    if at(live, ("status", "currentRevision")) == at(live, ("status", "updateRevision")):
        return True
    return partition > 0 and _number(live, "status", "updatedReplicas") >= wanted - partition


def _daemon_set(live: Manifest, around: Around) -> Progress:
    wanted = _number(live, "status", "desiredNumberScheduled")
    ready = _number(live, "status", "numberReady")
    updated = _number(live, "status", "updatedNumberScheduled")
    if not _observed(live):
        return Progress(note="waiting for the DaemonSet controller")
    if at(live, ("spec", "updateStrategy", "type")) == "OnDelete":
        updated = wanted
    if min(ready, updated) >= wanted:
        return _up(live, around)
    return _rollout(live, around, min(ready, updated), wanted)


def _replicas(live: Manifest, around: Around) -> Progress:
    wanted = _number(live, "spec", "replicas", default=1)
    ready = _number(live, "status", "readyReplicas")
    if _observed(live) and ready >= wanted:
        return _up(live, around)
    return _rollout(live, around, ready, wanted)


def _pod(live: Manifest, around: Around) -> Progress:
    if at(live, ("status", "phase")) == "Succeeded":
        return DONE
    if _condition(live, "Ready").get("status") == "True":
        return DONE
    pods = around.pods(live)
    if at(live, ("status", "phase")) == "Failed":
        reason, message = (at(live, ("status", key)) for key in ("reason", "message"))
        # The kubelet gives a reason if it rejects or evicts a pod.
        rejection = f"the pod failed ({reason}): {message or 'no message'}" if reason else ""
        return Progress(failure=rejection or pods.trouble() or "the pod failed")
    return Progress(note="waiting for the pod", detail=pods.busy(), failure=pods.failure())


def _job(live: Manifest, around: Around) -> Progress:
    if _condition(live, "Complete").get("status") == "True":
        return DONE
    if at(live, ("spec", "suspend")) is True:
        return DONE  # the job starts only when the user resumes it
    failed = _condition(live, "Failed")
    pods = around.pods(live)
    if failed.get("status") == "True":
        line = f"the Job failed ({failed.get('reason')}): {failed.get('message', '')}"
        trouble = pods.trouble()
        return Progress(failure=f"{line}; {trouble}" if trouble else line)
    succeeded = _number(live, "status", "succeeded")
    wanted = _number(live, "spec", "completions", default=1)
    note = f"{succeeded} of {wanted} pods of the Job succeeded"
    tries = _number(live, "status", "failed")
    note += f", {tries} failed" if tries else ""
    return Progress(note=note, detail=pods.note(), failure=pods.failure())


_SLICES: Final = Kind("discovery.k8s.io/v1", "EndpointSlice")


def _service(live: Manifest, around: Around) -> Progress:
    spec = live.get("spec") or {}
    if spec.get("type") == "LoadBalancer" and not at(live, ("status", "loadBalancer", "ingress")):
        return Progress(note="waiting for the load balancer's address")
    external = spec.get("type") == "ExternalName"
    if external or spec.get("clusterIP") == "None" or not spec.get("selector"):
        return DONE
    name = metadata(live)["name"]
    slices = around.objects(_SLICES, labelSelector=f"kubernetes.io/service-name={name}")
    endpoints = [e for s in slices for e in s.get("endpoints") or []]
    # An unset `ready` condition means true (EndpointSlice API).
    if any((at(e, ("conditions", "ready")) is not False) for e in endpoints):
        return DONE
    if endpoints:
        return Progress(note="waiting for a pod of the Service to be ready")
    return Progress(note="waiting for a pod that matches the selector of the Service")


def _ingress(live: Manifest, _around: Around) -> Progress:
    if at(live, ("status", "loadBalancer", "ingress")):
        return DONE
    return Progress(note="waiting for the ingress controller to assign an address")


def _claim(live: Manifest, around: Around) -> Progress:
    phase = at(live, ("status", "phase"))
    if phase == "Bound":
        return DONE
    if phase == "Lost":
        return Progress(
            failure="the PersistentVolume of this claim was deleted, so the claim cannot be used;"
            " restore the PersistentVolume from a backup, or delete the claim with kubectl and"
            " deploy again, to get an empty volume"
        )
    name = at(live, ("spec", "storageClassName"))
    if not name:
        return Progress(note="waiting for a volume")
    storage = around.api.get(Ref(Kind("storage.k8s.io/v1", "StorageClass"), None, name))
    if storage is None:
        return Progress(
            note=(
                f"waiting for a volume, but the StorageClass {name!r} does not exist; create it,"
                " or correct the name in the claim"
            )
        )
    if storage.get("volumeBindingMode") == "WaitForFirstConsumer":
        return DONE  # the volume is bound when a pod needs it
    return Progress(note=f"waiting for {storage.get('provisioner')} to provision a volume")


def _volume(live: Manifest, _around: Around) -> Progress:
    phase = at(live, ("status", "phase"))
    if phase in ("Available", "Bound"):
        return DONE
    if phase == "Failed":
        failure = at(live, ("status", "message")) or "the PersistentVolume failed"
        return Progress(failure=str(failure))
    return Progress(note=f"the volume is {phase or 'pending'}")


def _namespace(live: Manifest, _around: Around) -> Progress:
    if at(live, ("status", "phase")) == "Active":
        return DONE
    return Progress(note="waiting for the namespace to be active")


def _secret(live: Manifest, _around: Around) -> Progress:
    if live.get("type") != "kubernetes.io/service-account-token" or live.get("data"):
        return DONE
    return Progress(note="waiting for the service account's token")


def _quota(live: Manifest, _around: Around) -> Progress:
    if at(live, ("status", "hard")) == at(live, ("spec", "hard")):
        return DONE
    return Progress(note="waiting for the quota to take effect")


def _definition(live: Manifest, _around: Around) -> Progress:
    if _condition(live, "Established").get("status") == "True":
        return DONE
    refused = _condition(live, "NamesAccepted")
    if refused.get("status") == "False":
        failure = refused.get(
            "message",
            "another CustomResourceDefinition has the same names; delete one of the two, or"
            " rename one",
        )
        return Progress(failure=str(failure))
    return Progress(note="waiting for the API to serve the new kind")


_CHECKS: Final[Mapping[tuple[str, str], Check]] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replicas,
    ("", "ResourceQuota"): _quota,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replicas,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("networking.k8s.io", "Ingress"): _ingress,
}
_WITH_PODS: Final = frozenset(
    {"DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "ReplicationController", "StatefulSet"}
)


# ---------------------------------------------------------------------------------------------
# pulumi.com/waitFor


def _custom(annotation_value: str) -> Check:
    """Return the check of an annotation: one expression, or a JSON list of them."""
    try:
        listed = json.loads(annotation_value)
    except ValueError:
        listed = annotation_value
    wanted = [_expression(str(e)) for e in (listed if isinstance(listed, list) else [listed])]

    def check(live: Manifest, _around: Around) -> Progress:
        missing = [text for text, holds in wanted if not holds(live)]
        return Progress(note=f"waiting for {', '.join(missing)}") if missing else DONE

    return check


def _expression(text: str) -> tuple[str, Callable[[Manifest], bool]]:
    kind, _, rest = text.partition("=")
    if kind == "condition" and rest:
        name, _, status = rest.partition("=")
        expected = (status or "True").lower()
        return text, lambda live: str(_condition(live, name).get("status", "")).lower() == expected
    path = _json_path(rest) if kind == "jsonpath" else None
    if path is None:
        raise EngineError(
            f"annotation {WAIT_FOR}: {text!r}: expected jsonpath={{.path.to.field}}[=value] or"
            " condition=<type>[=<status>]"
        )
    steps, value = path
    if value is None:
        return text, lambda live: at(live, steps) is not None
    return text, lambda live: _as_text(at(live, steps)) == value


def _json_path(text: str) -> tuple[tuple[str | int, ...], str | None] | None:
    match = re.fullmatch(r"\{?\.?([^={}]+)\}?(?:=(.*))?", text)
    if match is None:
        return None
    steps: list[str | int] = []
    for step in re.finditer(r"\.?([\w-]+)|\[(\d+)\]|\[['\"]([^'\"]+)['\"]\]", match[1]):
        name, index, key = step.groups()
        steps.append(int(index) if index else name or key)
    return (tuple(steps), match[2]) if steps else None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
