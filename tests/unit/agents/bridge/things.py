"""Kubernetes' objects for the tests of the bridge, in the form in which the API sends them."""

from typing import Any, TypeVar

import msgspec

from agents.bridge.gangs import Job, JobSet, LeaderWorkerSet, Owners, PodGroup
from agents.bridge.observed import Pod as PlannedPod
from agents.bridge.podspec import Pod, Spec
from agents.bridge.wanted import Rule, Wanted

T = TypeVar("T")
MOMENT = "2026-11-30T08:00:00Z"
NOBODY = Owners({}, {}, {}, {})
"""No object describes a gang."""


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "lab",
        "uid": f"uid-of-{name}",
        "resourceVersion": "7",
        "creationTimestamp": MOMENT,
        **more,
    }


def read(item: dict[str, Any], kind: type[T]) -> T:
    """Decode an object as the API server sends it."""
    return msgspec.json.decode(msgspec.json.encode(item), type=kind)


def spec(content: dict[str, Any] | None = None) -> Spec:
    return read({"containers": [{"name": "main"}], **(content or {})}, Spec)


def pod(name: str = "train", content: dict[str, Any] | None = None, **more: Any) -> Pod:
    """Return a pod. `content` is part of its spec, and `more` of its metadata."""
    item = {"metadata": meta(name, **more), "spec": {"containers": [], **(content or {})}}
    return read(item, Pod)


def unplaced(name: str) -> PlannedPod:
    """Return a pod without a machine, in the form in which plans need it."""
    return PlannedPod("lab", name, f"uid-of-{name}", "7", 0.0, "g", 1, None)


def owners(*objects: Job | JobSet | LeaderWorkerSet | PodGroup) -> Owners:
    def those(kind: type[Any]) -> dict[tuple[str, str], Any]:
        return {("lab", one.metadata.name): one for one in objects if isinstance(one, kind)}

    return Owners(those(Job), those(PodGroup), those(JobSet), those(LeaderWorkerSet))


def rule(user: str = "alice", uid: int = 1001, **more: Any) -> Rule:
    content = {
        "namespace": "lab",
        "service_account": None,
        "gid": uid,
        "accounts": (),
        "may_set_priority": False,
    }
    return Rule(user=user, uid=uid, **{**content, **more})


def wanted(*rules: Rule) -> Wanted:
    return Wanted(
        scheduler="slurm-bridge",
        default_memory=512,
        partition="pods",
        feature="pods",
        rules=rules,
    )
