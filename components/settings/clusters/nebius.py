"""Settings of a cluster in the Nebius cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from components.settings.clusters.base import Problem
from components.settings.clusters.machines import CloudCluster, Machines, System
from components.settings.types import DnsLabel, Platform, Preset, Word

if TYPE_CHECKING:
    from components.settings.models import Settings
    from components.settings.nodesets import Nodeset


@dataclass(frozen=True)
class Size:
    """Size of a machine, from its preset's name; memory in MiB."""

    gpus: int
    cpus: int
    memory: int


def size_of(preset: str) -> Size:
    """Return the size of a checked preset, as `8gpu-128vcpu-1600gb`."""
    *gpus, cpus, gb = map(int, re.findall(r"\d+", preset))
    return Size(sum(gpus), cpus, gb * 1024)


class NebiusMachines(Machines):
    """Machines of one nodeset."""

    platform: Platform
    """Kind of machine, as 'gpu-h100-sxm' or 'cpu-d3'."""
    preset: Preset
    """Size of a machine, as '8gpu-128vcpu-1600gb'."""
    fabric: DnsLabel | None = None
    """InfiniBand fabric that connects machines of eight GPUs, as 'fabric-7'; it depends on region
    and platform."""


class NebiusSystem(System):
    """Machines for everything except workers."""

    platform: Platform = "cpu-d3"
    """Kind of machine."""
    preset: Preset = "16vcpu-64gb"
    """Size of a machine."""


class NebiusCluster(CloudCluster):
    """Managed Kubernetes of the Nebius cloud, with a shared file system for the jail."""

    kind: Literal["nebius"]
    project: Word
    """Id of the project for all resources, as 'project-e00…'."""
    subnet: Word | None = None
    """Id of an existing subnet; by default one in a network of the stack's own."""
    machines: dict[str, NebiusMachines] = {}
    """Machines by nodeset."""
    system: NebiusSystem = NebiusSystem()
    """Machines for everything except workers."""
    file_system_type: Literal["NETWORK_SSD", "NETWORK_HDD", "WEKA", "VAST"] = "NETWORK_SSD"
    """Type of the shared file system for the jail, which has the size `jail.size`."""

    def groups(self) -> Mapping[str, NebiusMachines]:
        """Return the machines by name of the nodeset."""
        return self.machines

    def machine_problems(self, nodeset: Nodeset) -> Iterator[Problem]:
        """Compare a node's GPUs, CPUs and memory with its machine, which needs a part for
        itself."""
        machines = self.machines[nodeset.name]
        size, gpus = size_of(machines.preset), nodeset.gpus.count if nodeset.gpus else 0
        if machines.platform.startswith("gpu-") != (gpus > 0):
            wanted = "with GPUs, as 'gpu-h100-sxm'" if gpus else "without GPUs, as 'cpu-d3'"
            yield (
                "platform",
                f"'{machines.platform}': expected a platform {wanted}, for nodes with {gpus} GPUs",
            )
        elif size.gpus != gpus:
            yield "preset", f"'{machines.preset}': expected {gpus} GPUs, to match the nodeset"
        if size.cpus <= (nodeset.cpu_request or nodeset.cpus):
            yield (
                "preset",
                (
                    f"'{machines.preset}': expected more CPUs than the nodeset's {nodeset.cpus}, "
                    "for kubelet and other daemons"
                ),
            )
        if size.memory <= nodeset.memory:
            yield (
                "preset",
                (
                    f"'{machines.preset}': expected more memory than the nodeset's "
                    f"{nodeset.memory} MiB, for kubelet and other daemons"
                ),
            )
        if machines.fabric and size.gpus != 8:
            yield "fabric", f"'{machines.fabric}': connects only machines with 8 GPUs; remove it"

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Refuse a fabric with two platforms, and a second Cilium."""
        yield from super().problems(stack)
        if stack.network.cilium:
            yield (
                "network.cilium",
                (
                    "the cloud installs Cilium in its clusters; remove it "
                    "(network.policies: cilium requires nothing more)"
                ),
            )
        seen: dict[str, tuple[str, str]] = {}
        for name, machines in self.machines.items():
            if not machines.fabric:
                continue
            first, platform = seen.setdefault(machines.fabric, (name, machines.platform))
            if platform != machines.platform:
                yield (
                    f"cluster.machines.{name}.fabric",
                    (
                        f"'{machines.fabric}': nodeset {first} uses it with {platform}; "
                        "a fabric connects one platform only, choose another"
                    ),
                )
