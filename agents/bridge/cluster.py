"""Read pods, machines and owners of pods from Kubernetes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agents import labels
from agents.bridge import quantities, size, wishes
from agents.bridge.fit import Machine, why_unsupported
from agents.bridge.gangs import (
    GangError,
    Job,
    JobSet,
    LeaderWorkerSet,
    Owners,
    PodGroup,
    membership,
)
from agents.bridge.identity import IdentityError, identity
from agents.bridge.observed import Pod, Request
from agents.bridge.podspec import Claim, PersistentVolume, StorageClass
from agents.bridge.podspec import Machine as MachineObject
from agents.bridge.podspec import Pod as PodObject
from agents.bridge.size import Amounts, added, subtracted
from agents.bridge.store import Store
from agents.bridge.volumes import Needs, VolumeError, Volumes, needs
from agents.bridge.wanted import Wanted
from agents.kubernetes import Api

_STOPPED = frozenset({"Succeeded", "Failed"})
"""Phases of pods whose containers have all stopped."""
_OWNERS: Mapping[str, tuple[str, type[Any]]] = {
    "jobs": ("/apis/batch/v1/jobs", Job),
    "job_sets": ("/apis/jobset.x-k8s.io/v1alpha2/jobsets", JobSet),
    "worker_sets": ("/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets", LeaderWorkerSet),
    "pod_groups": ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups", PodGroup),
}
"""For each field of `Owners`, the path of the objects and their type."""


class Cluster:
    """All objects that the bridge needs. Methods raise `KubernetesError`."""

    def __init__(self, api: Api, namespace: str, changed: Callable[[], None]) -> None:
        """`namespace` is that of the stack. `changed` is called after each change of an object. It
        must return quickly."""
        self._namespace = namespace
        self._pods = Store(api, "/api/v1/pods", PodObject, changed)
        self._machines = Store(api, "/api/v1/nodes", MachineObject, changed)
        self._owners: dict[str, Store[Any]] = {
            field: Store(api, path, kind, changed, is_optional=True)
            for field, (path, kind) in _OWNERS.items()
        }
        self._claims = Store(api, "/api/v1/persistentvolumeclaims", Claim, changed)
        self._volumes = Store(api, "/api/v1/persistentvolumes", PersistentVolume, changed)
        self._classes = Store(api, "/apis/storage.k8s.io/v1/storageclasses", StorageClass, changed)
        self._sizes: dict[tuple[str, str], Amounts] = {}
        """What each pod requests, by the pod's uid and version."""

    def start(self) -> None:
        """Begin to watch the objects."""
        self._pods.start()
        self._machines.start()
        self._claims.start()
        self._volumes.start()
        self._classes.start()
        for store in self._owners.values():
            store.start()

    def pods(self, wanted: Wanted) -> list[Pod]:
        """Return the pods that the bridge schedules."""
        owners, volumes = self._all_owners(), self._all_volumes()
        machines = {one.metadata.name for one in self._machines.objects()}
        return [
            pod(one, owners, volumes, machines, wanted)
            for one in self._pods.objects()
            if self._is_own(one, wanted)
        ]

    def machines(self, wanted: Wanted) -> dict[str, Machine]:
        """Return all machines by name."""
        used: dict[str, list[Amounts]] = defaultdict(list)
        ours: dict[str, list[Amounts]] = defaultdict(list)
        sizes: dict[tuple[str, str], Amounts] = {}
        for one in self._pods.objects():
            if not one.spec.node_name or one.status.phase in _STOPPED:
                continue
            key = one.metadata.uid, one.metadata.resource_version
            sizes[key] = self._sizes.get(key) or size.requested(one.spec)
            used[one.spec.node_name].append(sizes[key])
            if self._is_own(one, wanted):
                ours[one.spec.node_name].append(sizes[key])
        self._sizes = sizes
        names = {one.metadata.name: one for one in self._machines.objects()}
        return {name: _machine(one, used[name], ours[name]) for name, one in names.items()}

    def running(self, job: int, uids: Iterable[str]) -> list[PodObject]:
        """Return the bound pods of a job that may still have running containers.

        `uids` names pods of the job whose link to the job may be newer than the list of pods.
        """
        known = set(uids)
        link = {labels.JOB: str(job), labels.BRIDGE: self._namespace}
        return [
            one
            for one in self._pods.objects()
            if not has_stopped(one)
            and (
                one.metadata.uid in known
                or (one.spec.node_name and link.items() <= one.metadata.labels.items())
            )
        ]

    def running_on(self, machine: str) -> list[PodObject]:
        """Return the linked pods on a machine that may still have running containers."""
        return [
            one
            for one in self._pods.objects()
            if one.spec.node_name == machine
            and one.metadata.labels.get(labels.BRIDGE) == self._namespace
            and not has_stopped(one)
        ]

    def _is_own(self, item: PodObject, wanted: Wanted) -> bool:
        """Return whether the bridge schedules a pod, or has scheduled it with older settings."""
        is_linked = item.metadata.labels.get(labels.BRIDGE) == self._namespace
        return is_linked or item.spec.scheduler_name == wanted.scheduler

    def _all_volumes(self) -> Volumes:
        return Volumes(
            {(one.metadata.namespace, one.metadata.name): one for one in self._claims.objects()},
            {one.metadata.name: one for one in self._volumes.objects()},
            {one.metadata.name: one for one in self._classes.objects()},
        )

    def _all_owners(self) -> Owners:
        return Owners(
            **{
                field: {(one.metadata.namespace, one.metadata.name): one for one in store.objects()}
                for field, store in self._owners.items()
            }
        )


# --- Pods ----------------------------------------------------------------------------------------


def has_stopped(item: PodObject) -> bool:
    """Return whether no container of a pod runs, or will ever run.

    Kubernetes reports a final phase only when all containers have stopped. A deleted pod without a
    machine has never started.
    """
    is_deleted = item.metadata.deletion_timestamp is not None
    return item.status.phase in _STOPPED or (is_deleted and not item.spec.node_name)


def pod(
    item: PodObject, owners: Owners, volumes: Volumes, machines: set[str], wanted: Wanted
) -> Pod:
    """Return a pod in the form in which plans need it. `machines` are the names of all machines."""
    meta, spec = item.metadata, item.spec
    problem, request = "", None
    gang, members = f"Pod/{meta.namespace}/{meta.name}/{meta.uid}", 1
    try:
        if why := why_unsupported(spec):
            raise ValueError(why)
        member = membership(item, owners)
        wished = wishes.read(member.annotations)
        owner = identity(item, wished, wanted)
        needed = needs(item, volumes) if not spec.node_name else Needs()
        sizes = size.requested(spec), size.allowed(spec)
        _refuse_large(sizes)
        request = Request(member.name, owner, wished, spec, *sizes, needed)
        # Pods of different users have different jobs, even if they say that they are one gang.
        gang, members = f"{member.key}/{owner.user}/{owner.account or ''}", member.size
    except (GangError, IdentityError, VolumeError, wishes.WishError, ValueError) as error:
        problem = str(error)
    placed = next((one for one in item.status.conditions if one.type == "PodScheduled"), None)
    job = meta.labels.get(labels.JOB, "")
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        created=meta.creation_timestamp.timestamp(),
        gang=gang,
        gang_size=members,
        request=request,
        problem=problem,
        job=int(job) if job.isdecimal() else None,
        machine=spec.node_name,
        stops_by=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else None,
        # A machine that is gone runs no containers.
        has_stopped=has_stopped(item) or bool(spec.node_name and spec.node_name not in machines),
        has_succeeded=item.status.phase == "Succeeded",
        is_held_back=bool(spec.scheduling_gates),
        finalizers=tuple(meta.finalizers),
        said=placed.message if placed else "",
    )


def _refuse_large(sizes: Iterable[Amounts]) -> None:
    """Refuse more CPUs than a task in Slurm can have. Raises `ValueError`."""
    cpus = max(one.get("cpu", quantities.NOTHING) for one in sizes)
    if cpus > wishes.MOST_CPUS:
        raise ValueError(
            f"the pod may use {cpus:f} CPUs: expected at most {wishes.MOST_CPUS}, as in Slurm; "
            "lower its requests and limits"
        )


# --- Machines ------------------------------------------------------------------------------------


def _machine(item: MachineObject, used: Sequence[Amounts], ours: Sequence[Amounts]) -> Machine:
    free = subtracted(size.parsed(item.status.allocatable), added(used))
    return Machine(
        name=item.metadata.name,
        labels=item.metadata.labels,
        taints=tuple(item.spec.taints),
        is_cordoned=item.spec.unschedulable,
        free=free,
        room=added((free, added(ours))),
    )
