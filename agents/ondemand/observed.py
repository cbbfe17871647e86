"""Observed state: Slurm's records of nodes, their pods, and the templates of new pods."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents import labels, objects
from agents.kubernetes import Api
from agents.slurm import Client, Node

CAPACITY = "capacity"
"""No machine has room for the pod."""
IMAGE = "image"
"""The kubelet cannot fetch an image, or its name is invalid."""
BROKEN = "broken"
"""A container ends again and again, or cannot be created; or the kubelet has ended the pod."""

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_BROKEN = frozenset(
    {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_ENDED = frozenset({"Failed", "Succeeded"})
"""Phases of a pod that has ended."""


@dataclass(frozen=True)
class Trouble:
    """Reason why a pod does not start."""

    kind: str
    text: str


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    created: float
    """Unix time."""
    template: str
    """Digest of the template that the pod was made from."""
    is_ready: bool = False
    leaves: bool = False
    """Whether the pod is terminating."""
    ends: float = math.inf
    """Unix time at which the grace period of a terminating pod ends."""
    machine: str = ""
    has_ended: bool = False
    """Whether the kubelet has rejected or evicted the pod. Kubernetes never starts it again."""
    trouble: Trouble | None = None


@dataclass(frozen=True)
class Template:
    """Template of the pods of a nodeset."""

    nodeset: str
    uid: str
    """UID of the PodTemplate. The PodTemplate owns the pods, so that Kubernetes deletes the pods
    with it."""
    content: Mapping[str, Any]
    """Metadata and spec of a pod."""
    digest: str


@dataclass(frozen=True)
class Observed:
    records: Mapping[str, Node]
    pods: Mapping[str, Pod]
    templates: Mapping[str, Template]
    """Template of each nodeset on demand."""


def observe(slurm: Client, api: Api, namespace: str) -> Observed:
    """Read the whole state. Raises `SlurmError` and `KubernetesError`.

    Reads Slurm before Kubernetes, so a pod may be newer than the record of its node. The next pass
    then reads a record that is newer than the pod.
    """
    records = {node.name: node for node in slurm.nodes()}
    path = f"/api/v1/namespaces/{namespace}"
    pods = {
        one.name: one
        for one in map(_pod, api.items(f"{path}/pods", objects.Pod, labelSelector=labels.ON_DEMAND))
    }
    templates = {
        one.nodeset: one
        for one in map(
            _template,
            api.items(f"{path}/podtemplates", objects.PodTemplate, labelSelector=labels.ON_DEMAND),
        )
    }
    return Observed(records, pods, templates)


def _pod(item: objects.Pod) -> Pod:
    meta, status = item["metadata"], item["status"]
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready = conditions.get("Ready")
    created, leaves = meta["creationTimestamp"], meta.get("deletionTimestamp")
    has_ended = status.get("phase") in _ENDED
    is_ready = not has_ended and ready is not None and ready["status"] == "True"
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        created=created.timestamp(),
        template=meta.get("annotations", {}).get(labels.TEMPLATE, ""),
        is_ready=is_ready,
        leaves=leaves is not None,
        ends=leaves.timestamp() if leaves else math.inf,
        machine=item["spec"].get("nodeName", ""),
        has_ended=has_ended,
        trouble=None if is_ready else _trouble(status, conditions),
    )


def _trouble(
    status: objects.PodStatus, conditions: Mapping[str, objects.Condition]
) -> Trouble | None:
    if status.get("phase") in _ENDED:
        reason = status.get("reason") or "the pod has ended; Kubernetes gives no reason"
        return Trouble(BROKEN, f"{reason}: {status.get('message', '')}".rstrip(": "))
    placed = conditions.get("PodScheduled")
    if placed and placed["status"] == "False":
        return Trouble(
            CAPACITY,
            placed.get("message") or "Kubernetes has not scheduled the pod and gives no reason",
        )
    for container in (
        *status.get("initContainerStatuses", ()),
        *status.get("containerStatuses", ()),
    ):
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        text = f"{container['name']}: {reason} {waiting.get('message', '')}".strip()
        if reason in _IMAGE:
            return Trouble(IMAGE, text)
        if reason in _BROKEN:
            return Trouble(BROKEN, text)
    return None


def _template(item: objects.PodTemplate) -> Template:
    meta = item["metadata"]
    text = json.dumps(item["template"], sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()[:16]
    return Template(meta["labels"][labels.NODESET], meta["uid"], item["template"], digest)
