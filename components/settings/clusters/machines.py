"""Settings of the machines that a deploy creates in a cloud, and rules for every cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from components.conventions import CLUSTER_DOMAIN, MAX_REPLICAS
from components.settings.clusters.base import (
    BaseCluster,
    Problem,
    missing_registry,
    unreachable_machines,
)
from components.settings.types import (
    Cidr,
    KubernetesVersion,
    MemoryMiB,
    Model,
    Number,
    cross_field,
    known_names,
)

if TYPE_CHECKING:
    from components.settings.models import Settings
    from components.settings.nodesets import Nodeset

SYSTEM: Final = "system"
"""Name of the group of machines for everything except workers."""
_PAGES: Final = 64
"""Linux uses a 64th of the memory itself: 64 bytes (struct page) for each page of 4096 bytes."""
_FREE: Final = 100
"""Memory in MiB that kubelet keeps free (its default for evictionHard)."""


def least_overhead(memory: int) -> int:
    """Return, in MiB, the least part of a machine's memory that pods can never request.

    The true amount is larger: other daemons also need memory.
    """
    return memory // _PAGES + _FREE


def shown_memory(nodeset: Nodeset) -> str:
    """Return the memory that a node requests from its machine, as text for errors."""
    pages = sum(nodeset.pod.hugepages.values())
    also = f" and the {pages / 1024:g} GiB of its pod.hugepages" if pages else ""
    return f"{nodeset.memory / 1024:g} GiB{also}"


class Autoscaling(Model):
    """Limits of autoscaling, which adds and removes machines according to the pods."""

    min: Annotated[int, Field(ge=0, le=MAX_REPLICAS), Number] = 0
    """Minimum number of machines, even if no pod needs them."""
    max: Annotated[int, Field(ge=1, le=MAX_REPLICAS), Number]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise cross_field(
                "min",
                f"{self.min}: expected at most the setting 'max', which is {self.max}; lower "
                "'min', or raise 'max'",
            )
        return self


class Machines(Model):
    """Machines of one nodeset: one machine for each node."""

    disk: MemoryMiB = Field("256GiB", validate_default=True)
    """Size of a machine's system disk, for images and the pods' own files."""
    spot: bool = False
    """Use cheaper machines that the cloud may take back at any time."""
    autoscaling: Autoscaling | None = None
    """Autoscaling of the machines. By default, the number of machines is the nodeset's replicas.
    For nodes on demand, the default is autoscaling with at most `replicas` machines."""


class System(Model):
    """Machines for everything except workers: controller, login nodes, database, monitoring."""

    replicas: Annotated[int, Field(ge=1, le=100), Number] = 2
    """Number of machines."""


class CloudCluster(BaseCluster):
    """A cluster that a deploy creates in a cloud, with a group of machines for each nodeset."""

    makes_machines: ClassVar[bool] = True
    domain: ClassVar[str] = CLUSTER_DOMAIN
    version: KubernetesVersion = "1.33"
    """Kubernetes version."""
    api_from: Annotated[tuple[Cidr, ...], Field(min_length=1)]
    """Networks that may connect to the Kubernetes API, such as '192.0.2.0/24'. The network of the
    machine that deploys must be among them."""

    def groups(self) -> Mapping[str, Machines]:
        """Return the machines of each nodeset, by the nodeset's name."""
        raise NotImplementedError

    def machine_problems(self, nodeset: Nodeset) -> Iterator[Problem]:
        """Yield conflicts between a nodeset and its machines.

        Keys are relative to `cluster.machines.<nodeset>`.
        """
        raise NotImplementedError

    def has_cards(self, nodeset: Nodeset) -> bool:
        """Return whether the nodeset's pods request devices that only a running machine reports."""
        return nodeset.gpus is not None

    def bounds(self, nodeset: Nodeset) -> Autoscaling | None:
        """Return the limits of autoscaling; None for a fixed number of machines."""
        chosen = self.groups()[nodeset.name].autoscaling
        if chosen or nodeset.on_demand is None:
            return chosen
        least = max(nodeset.on_demand.min, int(self.has_cards(nodeset)))
        return Autoscaling(min=least, max=max(nodeset.replicas, 1))

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Require machines that fit each nodeset, and a registry."""
        yield from missing_registry(stack)
        if stack.snapshots and stack.snapshots.jail and not stack.jail.is_elsewhere():
            yield (
                "snapshots.jail",
                (
                    f"'{stack.snapshots.jail}': the jail is on the cloud's file system, which has "
                    "no VolumeSnapshots; remove snapshots.jail and use the cloud's backups, or "
                    "choose another driver with jail.storage_class or jail.csi"
                ),
            )
        yield from unreachable_machines(stack)
        yield from self._disk_problems(stack)
        groups = self.groups()
        nodesets = {nodeset.name: nodeset for nodeset in stack.nodesets}
        for index, nodeset in enumerate(stack.nodesets):
            if nodeset.name == SYSTEM:
                yield (
                    f"nodesets[{index}].name",
                    (
                        f"'{SYSTEM}': this name is reserved for the group of machines without "
                        "workers; choose another name for the nodeset"
                    ),
                )
        for name in groups:
            if name not in nodesets:
                known = known_names(name, nodesets)
                yield f"cluster.machines.{name}", f"'{name}' is not a nodeset; {known}"
        for name, nodeset in nodesets.items():
            if name not in groups:
                problem = (
                    f"nodeset '{name}' has no machines, so its pods could not start; add "
                    f"cluster.machines.{name}"
                )
                yield "cluster.machines", problem
                continue
            for key, problem in (*self._bound_problems(nodeset), *self.machine_problems(nodeset)):
                yield f"cluster.machines.{name}.{key}", problem

    def _disk_problems(self, stack: Settings) -> Iterator[Problem]:
        """Require that a machine's disk is larger than the disk limit of the node's pod.

        Kubernetes reserves as much disk space as this limit.
        """
        groups = self.groups()
        for index, nodeset in enumerate(stack.nodesets):
            machines, wanted = groups.get(nodeset.name), nodeset.ephemeral_storage
            # Also refuse a limit that equals the disk's size: the operating system and kubelet's
            # reserve need a part of the disk.
            if machines and wanted and wanted >= machines.disk:
                yield (
                    f"nodesets[{index}].ephemeral_storage",
                    (
                        f"{wanted / 1024:g}GiB: expected less than the disk of the nodeset's "
                        f"machines, {machines.disk / 1024:g}GiB; lower this size, or raise "
                        f"cluster.machines.{nodeset.name}.disk"
                    ),
                )

    def _bound_problems(self, nodeset: Nodeset) -> Iterator[Problem]:
        bounds = self.bounds(nodeset)
        if bounds and bounds.max < nodeset.replicas:
            yield (
                "autoscaling.max",
                (
                    f"{bounds.max}: expected at least nodesets[{nodeset.name}].replicas, which is "
                    f"{nodeset.replicas}; raise 'max', or lower 'replicas'"
                ),
            )
        if bounds and not bounds.min and self.has_cards(nodeset):
            yield (
                "autoscaling.min",
                (
                    "0: expected at least 1, because without a running machine the autoscaler "
                    "does not know which GPUs and network cards a new machine would have"
                ),
            )
