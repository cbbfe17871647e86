"""Settings of a cluster in the Nebius cloud."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from components.settings.clusters.base import Problem
from components.settings.clusters.machines import (
    CloudCluster,
    Machines,
    System,
    least_overhead,
    shown_memory,
)
from components.settings.nodesets import INFINIBAND, NVIDIA
from components.settings.types import DnsLabel, NebiusProject, Platform, Preset, Word

if TYPE_CHECKING:
    from components.settings.models import Settings
    from components.settings.nodesets import Nodeset


@dataclass(frozen=True)
class Size:
    """Size of a machine, parsed from the name of its preset; memory in MiB."""

    gpus: int
    cpus: int
    memory: int


def size_of(preset: str) -> Size:
    """Return the size of a valid preset, such as `8gpu-128vcpu-1600gb`.

    `gb` in a preset's name means GiB: in Nebius's price list, `1gpu-16vcpu-200gb` has 200 GiB of
    memory (source: docs.nebius.com, billing changes of October 2025).
    """
    *gpus, cpus, gb = map(int, re.findall(r"\d+", preset))
    return Size(sum(gpus), cpus, gb * 1024)


class NebiusMachines(Machines):
    """Machines of one nodeset."""

    platform: Platform
    """Kind of machine, such as 'gpu-h100-sxm' or 'cpu-d3'."""
    preset: Preset
    """Size of a machine, such as '8gpu-128vcpu-1600gb'."""
    fabric: DnsLabel | None = None
    """InfiniBand fabric that connects machines with eight GPUs, such as 'fabric-7'. The available
    fabrics depend on the region and the platform."""


class NebiusSystem(System):
    """Machines for everything except workers."""

    platform: Platform = "cpu-d3"
    """Kind of machine."""
    preset: Preset = "16vcpu-64gb"
    """Size of a machine."""


class NebiusCluster(CloudCluster):
    """Managed Kubernetes of the Nebius cloud, with a shared file system for the jail."""

    kind: Literal["nebius"]
    project: NebiusProject
    """Id of the project for all resources, such as 'project-e00…'."""
    subnet: Word | None = None
    """Id of an existing subnet; by default the stack creates a network with a subnet."""
    machines: dict[str, NebiusMachines] = {}
    """Machines of each nodeset, by the nodeset's name."""
    system: NebiusSystem = NebiusSystem()
    """Machines for everything except workers."""
    file_system_type: Literal["NETWORK_SSD", "NETWORK_HDD", "WEKA", "VAST"] = "NETWORK_SSD"
    """Type of the shared file system for the jail; `jail.size` is its size."""

    def groups(self) -> Mapping[str, NebiusMachines]:
        return self.machines

    def machine_problems(self, nodeset: Nodeset) -> Iterator[Problem]:
        """Require the node's number of GPUs, and CPUs and memory for the node and for daemons."""
        machines = self.machines[nodeset.name]
        size, gpus = size_of(machines.preset), nodeset.gpus.count if nodeset.gpus else 0
        if machines.platform.startswith("gpu-") != (gpus > 0):
            wanted = (
                "with GPUs, such as 'gpu-h100-sxm'" if gpus else "without GPUs, such as 'cpu-d3'"
            )
            yield (
                "platform",
                f"'{machines.platform}': expected a platform {wanted}, for nodes with {gpus} GPUs",
            )
        elif nodeset.gpus and nodeset.gpus.vendor() != NVIDIA:
            yield (
                "platform",
                (
                    f"'{machines.platform}': has GPUs of NVIDIA, but gpus.resource of the nodeset "
                    f"is '{nodeset.gpus.resource}'; set gpus.resource to '{NVIDIA}/gpu'"
                ),
            )
        elif size.gpus != gpus:
            yield (
                "preset",
                (
                    f"'{machines.preset}': expected a preset with {gpus} GPUs, the number in "
                    "gpus.count of the nodeset"
                ),
            )
        if size.cpus <= nodeset.requested_cpus:
            yield (
                "preset",
                (
                    f"'{machines.preset}': expected a preset with more than the nodeset's "
                    f"{nodeset.requested_cpus:g} CPUs, because kubelet and other daemons also "
                    "need CPUs"
                ),
            )
        most = size.memory - least_overhead(size.memory)
        if most < nodeset.requested_memory:
            yield (
                "preset",
                (
                    f"'{machines.preset}': leaves pods at most {most / 1024:.1f} GiB of memory,"
                    " because kubelet and other daemons need the rest; expected a preset that"
                    f" leaves at least the nodeset's {shown_memory(nodeset)}"
                ),
            )
        if machines.fabric and size.gpus != 8:
            yield (
                "fabric",
                (
                    f"'{machines.fabric}': a fabric connects only machines with 8 GPUs; remove "
                    "'fabric', or choose a preset with 8 GPUs"
                ),
            )

    def warnings(self, stack: Settings) -> Iterator[Problem]:
        """Warn if nodes have a fabric but no checks of its ports, or such checks but no fabric."""
        for nodeset in stack.nodesets:
            machines = self.machines.get(nodeset.name)
            fabric = machines.fabric if machines else None
            has_checks = INFINIBAND in nodeset.features
            if fabric and not has_checks:
                yield (
                    f"cluster.machines.{nodeset.name}.fabric",
                    (
                        f"'{fabric}': the nodes have InfiniBand, but do not check their ports; "
                        f"add 'features: [{INFINIBAND}]' to nodeset '{nodeset.name}'"
                    ),
                )
            elif has_checks and machines and not fabric:
                yield (
                    f"nodesets[{nodeset.name}].features",
                    (
                        f"{INFINIBAND}: the machines of nodeset '{nodeset.name}' are in no "
                        "fabric, so the checks of InfiniBand ports fail; add "
                        f"cluster.machines.{nodeset.name}.fabric, or remove this feature"
                    ),
                )

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Refuse a fabric that two platforms share, and a second installation of Cilium."""
        yield from super().problems(stack)
        if stack.network.cilium:
            yield (
                "network.cilium",
                (
                    "Nebius already installs Cilium in its clusters; remove network.cilium. The "
                    "setting network.policies: cilium works without it"
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
                        f"'{machines.fabric}': nodeset '{first}' already uses this fabric with "
                        f"platform '{platform}', and a fabric connects machines of only one "
                        "platform; choose another fabric"
                    ),
                )
