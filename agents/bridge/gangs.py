"""Group pods into gangs. A gang has one job in Slurm, and its pods start together.

Most pods are a gang of their own. These pods form gangs together:

- pods with the same label `slurmstack.dev/gang`; the annotation `slurmstack.dev/gang-size` has
  their number;
- pods of a PodGroup of Kubernetes' scheduler-plugins;
- pods of one group of a LeaderWorkerSet;
- pods of a JobSet, or of one of its parts if the parts start one after the other;
- pods of a Job with completionMode `Indexed`.

Sources: scheduling.x-k8s.io/v1alpha1, leaderworkerset.x-k8s.io/v1, jobset.x-k8s.io/v1alpha2 and
batch/v1 (labels and annotations that their controllers set).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from agents.bridge.podspec import Meta, Pod
from agents.labels import DOMAIN

GANG: Final = f"{DOMAIN}/gang"
GANG_SIZE: Final = f"{DOMAIN}/gang-size"
POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
_LWS: Final = "leaderworkerset.sigs.k8s.io"
_JOBSET: Final = "jobset.sigs.k8s.io"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


class GangError(Exception):
    """The members of a gang cannot be determined. The message is one line with a remedy."""


# --- Objects that describe gangs -----------------------------------------------------------------


class _Fields(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Base of all types here."""


class _JobSpec(_Fields, frozen=True):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"

    def at_once(self) -> int:
        """Return how many pods run at the same time."""
        return min(self.parallelism, self.completions or self.parallelism)


class Job(_Fields, frozen=True):
    metadata: Meta
    spec: _JobSpec = _JobSpec()


class _GroupSpec(_Fields, frozen=True):
    min_member: int = 1


class PodGroup(_Fields, frozen=True):
    metadata: Meta
    spec: _GroupSpec = _GroupSpec()


class _JobTemplate(_Fields, frozen=True):
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(_Fields, frozen=True):
    name: str
    template: _JobTemplate = _JobTemplate()
    replicas: int = 1
    depends_on: list[msgspec.Raw] = []

    def at_once(self) -> int:
        return self.replicas * self.template.spec.at_once()


class _StartupPolicy(_Fields, frozen=True):
    startup_policy_order: str = "AnyOrder"


class _JobSetSpec(_Fields, frozen=True):
    replicated_jobs: list[_ReplicatedJob] = []
    startup_policy: _StartupPolicy = _StartupPolicy()

    def starts_in_order(self) -> bool:
        return self.startup_policy.startup_policy_order == "InOrder" or any(
            part.depends_on for part in self.replicated_jobs
        )


class JobSet(_Fields, frozen=True):
    metadata: Meta
    spec: _JobSetSpec = _JobSetSpec()


class LeaderWorkerSet(_Fields, frozen=True):
    metadata: Meta


@dataclass(frozen=True)
class Owners:
    """Objects that describe gangs, by namespace and name."""

    jobs: Mapping[tuple[str, str], Job]
    pod_groups: Mapping[tuple[str, str], PodGroup]
    job_sets: Mapping[tuple[str, str], JobSet]
    worker_sets: Mapping[tuple[str, str], LeaderWorkerSet]


# --- Membership ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Membership:
    """The gang that a pod belongs to."""

    key: str
    """Unique in the cluster, also over time."""
    name: str
    """Name of the job in Slurm, unless an annotation names it."""
    size: int
    """Number of pods that start together."""
    annotations: Mapping[str, str]
    """Annotations that describe the job."""


def membership(pod: Pod, owners: Owners) -> Membership:
    """Return the gang of a pod. Raises `GangError`."""
    labels = pod.metadata.labels
    if POD_GROUP in labels:
        return _of_pod_group(pod, owners)
    if f"{_LWS}/name" in labels:
        return _of_worker_set(pod, owners)
    if f"{_JOBSET}/jobset-name" in labels:
        return _of_job_set(pod, owners)
    if GANG in labels:
        return _of_label(pod)
    job = _owning_job(pod, owners)
    if job is None:
        return _single(pod, {})
    if job.spec.completion_mode == "Indexed" and _INDEX in pod.metadata.annotations:
        return _together(pod, "Job", job.metadata, job.spec.at_once())
    return _single(pod, job.metadata.annotations)


def _single(pod: Pod, described: Mapping[str, str]) -> Membership:
    meta = pod.metadata
    return Membership(
        f"Pod/{meta.namespace}/{meta.name}/{meta.uid}",
        f"{meta.namespace}/{meta.name}",
        1,
        {**meta.annotations, **described},
    )


def _together(pod: Pod, kind: str, owner: Meta, size: int, part: str = "") -> Membership:
    name = f"{owner.name}/{part}" if part else owner.name
    return Membership(
        f"{kind}/{pod.metadata.namespace}/{name}/{owner.uid}",
        f"{pod.metadata.namespace}/{name}",
        size,
        {**pod.metadata.annotations, **owner.annotations},
    )


def _of_pod_group(pod: Pod, owners: Owners) -> Membership:
    name = pod.metadata.labels[POD_GROUP]
    group = owners.pod_groups.get((pod.metadata.namespace, name))
    if group is None:
        raise GangError(f"PodGroup '{name}': does not exist; create it, or remove the pod's label")
    return _together(pod, "PodGroup", group.metadata, group.spec.min_member)


def _of_worker_set(pod: Pod, owners: Owners) -> Membership:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    name, index = labels[f"{_LWS}/name"], labels.get(f"{_LWS}/group-index", "0")
    found = owners.worker_sets.get((pod.metadata.namespace, name))
    if found is None:
        raise GangError(f"LeaderWorkerSet '{name}': does not exist; delete the pod")
    size = _size(f"{_LWS}/size", annotations.get(f"{_LWS}/size", "1"))
    return _together(pod, "LeaderWorkerSet", found.metadata, size, index)


def _of_job_set(pod: Pod, owners: Owners) -> Membership:
    name = pod.metadata.labels[f"{_JOBSET}/jobset-name"]
    found = owners.job_sets.get((pod.metadata.namespace, name))
    if found is None:
        raise GangError(f"JobSet '{name}': does not exist; delete the pod")
    sizes = {part.name: part.at_once() for part in found.spec.replicated_jobs}
    if not found.spec.starts_in_order():
        return _together(pod, "JobSet", found.metadata, sum(sizes.values()))
    part = pod.metadata.labels.get(f"{_JOBSET}/replicatedjob-name", "")
    return _together(pod, "JobSet", found.metadata, sizes.get(part, 1), part)


def _of_label(pod: Pod) -> Membership:
    meta = pod.metadata
    size = meta.annotations.get(GANG_SIZE)
    if size is None:
        raise GangError(
            f"the pod has the label '{GANG}', but no annotation '{GANG_SIZE}' with the number of "
            "pods in the gang; add it"
        )
    name = meta.labels[GANG]
    return Membership(
        f"Gang/{meta.namespace}/{name}",
        f"{meta.namespace}/{name}",
        _size(GANG_SIZE, size),
        meta.annotations,
    )


def _size(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise GangError(
            f"annotation '{key}': '{text}': expected the number of pods in the gang; correct it"
        )
    return int(text)


def _owning_job(pod: Pod, owners: Owners) -> Job | None:
    for owner in pod.metadata.owner_references:
        if owner.controller and owner.kind == "Job":
            found = owners.jobs.get((pod.metadata.namespace, owner.name))
            return found if found and found.metadata.uid == owner.uid else None
    return None
