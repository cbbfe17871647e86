"""Settings of a cluster in AWS."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from components.conventions import AWS_CNI
from components.settings.clusters import ec2
from components.settings.clusters.base import Problem, blocked_pods
from components.settings.clusters.machines import CloudCluster, Machines, System, shown_memory
from components.settings.nodesets import AMD
from components.settings.types import (
    Cidr,
    InstanceType,
    Model,
    Number,
    Region,
    Word,
    cross_field,
    duplicates,
    matches,
)

if TYPE_CHECKING:
    from components.settings.models import Settings
    from components.settings.nodesets import Nodeset

_ACCELERATED: Final = re.compile(r"(p|g|gr)\d")
"""Instance families with GPUs (source: EC2, instance types, accelerated computing)."""
_AMD_TYPES: Final = "g4ad."
"""Prefix of the instance types with AMD GPUs."""
_FAST: Final = re.compile(r"(p4d|p4de|p5|p5e|p5en|p6[-a-z0-9]*)\.")
"""Instance families for training on several nodes (source: EC2, Elastic Fabric Adapter)."""
_RESERVATION: Final = re.compile(r"cr-[0-9a-f]{17}")
SUBNET_BITS: Final = 4
"""Each subnet is a sixteenth of the network. Two subnets are reserved for each zone from a to h,
even if the stack does not use the zone."""
_OF_AMAZON: Final = 5
"""Number of addresses that Amazon reserves in each subnet (source: VPC, subnet sizing)."""
_OF_A_MACHINE: Final = 2
"""Least number of addresses that a machine uses: its own, and one for its node's pod. Amazon's
plugin reserves more: by default, all addresses of one more network interface (its setting
WARM_ENI_TARGET)."""
_WIDEST: Final = 20
"""Longest prefix of the network: each of the 16 subnets of a /20 is a /24."""
ZONES: Final = "abcdefgh"
"""Letters of zones; a region has at most six zones."""
_LUSTRE: Final = 1_228_800, 2_457_600
"""Sizes of an SSD file system in MiB: 1.2 TiB, or a multiple of 2.4 TiB (source: FSx for Lustre,
StorageCapacity)."""


def _size_problems(type_: str, nodeset: Nodeset) -> Iterator[Problem]:
    """Require CPUs and memory for the node and for daemons, if the type's name shows the sizes."""
    cpus, gib = ec2.cpus(type_), ec2.memory(type_)
    if cpus is not None and cpus <= nodeset.requested_cpus:
        yield (
            "type",
            (
                f"'{type_}': has {cpus} CPUs; expected a type with more than the nodeset's "
                f"{nodeset.requested_cpus:g} CPUs, because kubelet and other daemons also need "
                "CPUs"
            ),
        )
    if gib is None:
        return
    most = gib * 1024 - ec2.reserved(gib)
    if most < nodeset.requested_memory:
        yield (
            "type",
            (
                f"'{type_}': has {gib} GiB of memory, and leaves pods at most "
                f"{most / 1024:.1f} GiB, because kubelet and other daemons need the rest; expected "
                f"a type that leaves at least the nodeset's {shown_memory(nodeset)}"
            ),
        )


def _card_problems(machines: EksMachines, nodeset: Nodeset) -> Iterator[Problem]:
    """Refuse more GPUs and Elastic Fabric Adapters than the machines have."""
    type_, wanted = machines.type, nodeset.gpus.count if nodeset.gpus else 0
    gpus, adapters = ec2.gpus(type_), ec2.adapters(type_)
    if gpus is not None and gpus < wanted:
        yield (
            "type",
            (
                f"'{type_}': has {gpus} GPUs, but each node of the nodeset needs {wanted} "
                "(gpus.count); choose a larger type, or lower gpus.count"
            ),
        )
    if adapters is not None and machines.efa and machines.efa > adapters:
        number = f"at most {adapters}" if adapters else "no"
        remedy = f"lower efa to {adapters}" if adapters else "remove efa"
        yield (
            "efa",
            (
                f"{machines.efa}: instance type '{type_}' has {number} Elastic Fabric Adapters; "
                f"{remedy}, or choose another type"
            ),
        )


class EksReservation(Model):
    """Capacity that the account has reserved, in the cluster's first zone."""

    id: Annotated[
        str,
        matches(
            _RESERVATION,
            "reservation",
            "the id of a Capacity Reservation, such as 'cr-0123456789abcdef0'",
        ),
    ]
    """Id of the Capacity Reservation."""
    kind: Literal["on-demand", "block"] = "on-demand"
    """on-demand: an On-Demand Capacity Reservation; block: a Capacity Block for ML, which ends at
    a fixed time."""


class EksMachines(Machines):
    """Machines of one nodeset."""

    type: InstanceType
    """Instance type, such as 'p5.48xlarge'."""
    efa: Annotated[int, Field(ge=1, le=32), Number] | None = None
    """Number of Elastic Fabric Adapters of an instance; each node gets all of them. With this
    setting, Amazon places the machines close together, in a placement group."""
    reservation: EksReservation | None = None
    """Reserved capacity for the machines; by default none."""

    @model_validator(mode="after")
    def _is_not_spot(self) -> Self:
        if self.spot and self.reservation:
            raise cross_field(
                "spot",
                "true: spot machines cannot use the capacity of 'reservation'; remove 'spot' "
                "or 'reservation'",
            )
        return self


class EksSystem(System):
    """Machines for everything except workers."""

    type: InstanceType = "m7i.4xlarge"


class EksCluster(CloudCluster):
    """Amazon EKS in its own network, with FSx for Lustre or EFS for the jail."""

    brings_driver: ClassVar[bool] = True
    kind: Literal["eks"]
    region: Region
    """Region, such as 'eu-central-1'."""
    zones: Annotated[tuple[Word, ...], Field(min_length=2, max_length=4)]
    """Availability zones of the region, such as 'eu-central-1a'. The workers and the file system
    are in the first zone: choose it before the first deploy."""
    network: Cidr = "10.0.0.0/16"
    """Address range of the new network, from /16 to /20."""
    machines: dict[str, EksMachines] = {}
    """Machines of each nodeset, by the nodeset's name."""
    system: EksSystem = EksSystem()
    """Machines for everything except workers."""
    file_system: Literal["lustre", "efs"] = "lustre"
    """File system of the jail: FSx for Lustre of size `jail.size`, or EFS, which has no fixed
    size."""
    throughput: Literal[125, 250, 500, 1000] = 250
    """Throughput of Lustre, in MB/s per TiB."""

    def groups(self) -> Mapping[str, EksMachines]:
        return self.machines

    @model_validator(mode="after")
    def _network_divides(self) -> Self:
        network = ipaddress.ip_network(self.network)
        if network.version != 4 or not 16 <= network.prefixlen <= _WIDEST:
            raise cross_field(
                "network", f"'{self.network}': expected an IPv4 range from /16 to /{_WIDEST}"
            )
        return self

    @model_validator(mode="after")
    def _zones_are_of_the_region(self) -> Self:
        for zone in self.zones:
            if zone[:-1] != self.region or zone[-1] not in ZONES:
                raise cross_field(
                    "zones",
                    f"'{zone}': expected a zone of {self.region}, from {self.region}{ZONES[0]} to "
                    f"{self.region}{ZONES[-1]}",
                )
        for zone in duplicates(self.zones):
            raise cross_field("zones", f"'{zone}' is listed twice; keep one")
        return self

    def has_cards(self, nodeset: Nodeset) -> bool:
        """Return whether the nodeset's pods request GPUs or Elastic Fabric Adapters."""
        return super().has_cards(nodeset) or bool(self.machines[nodeset.name].efa)

    def machine_problems(self, nodeset: Nodeset) -> Iterator[Problem]:
        """Require GPU instances for a nodeset with GPUs, and other instances for other nodesets."""
        machines = self.machines[nodeset.name]
        if bool(_ACCELERATED.match(machines.type)) != bool(nodeset.gpus):
            wanted = "with GPUs, such as 'p5.48xlarge'" if nodeset.gpus else "without GPUs"
            yield (
                "type",
                f"'{machines.type}': expected a type {wanted}, to match 'gpus' of the nodeset",
            )
            return
        yield from _card_problems(machines, nodeset)
        yield from _size_problems(machines.type, nodeset)
        if nodeset.gpus and (
            (nodeset.gpus.vendor() == AMD) != machines.type.startswith(_AMD_TYPES)
        ):
            yield (
                "type",
                (
                    f"'{machines.type}': the GPUs of this instance type are not from the vendor "
                    f"that gpus.resource of the nodeset names, '{nodeset.gpus.resource}'; change "
                    "'type' or gpus.resource"
                ),
            )

    def warnings(self, stack: Settings) -> Iterator[Problem]:
        """Warn if jobs would not use all GPUs, or the fast network between the machines."""
        for nodeset in stack.nodesets:
            key, machines = f"cluster.machines.{nodeset.name}", self.machines[nodeset.name]
            gpus = ec2.gpus(machines.type) or 0
            if nodeset.gpus and nodeset.gpus.count < gpus:
                yield (
                    f"{key}.type",
                    (
                        f"'{machines.type}': has {gpus} GPUs, but gpus.count of the nodeset is "
                        f"{nodeset.gpus.count}, so jobs cannot use the other GPUs; set gpus.count "
                        f"to {gpus}, or choose a smaller type"
                    ),
                )
            if nodeset.replicas > 1 and machines.efa is None and _FAST.match(machines.type):
                number = ec2.adapters(machines.type)
                remedy = (
                    f"add efa: {number}"
                    if number
                    else ("set 'efa' to the number of adapters that each node needs")
                )
                yield (
                    f"{key}.efa",
                    (
                        "is not set, so jobs on several nodes do not use the Elastic Fabric "
                        f"Adapters of {machines.type}; {remedy}"
                    ),
                )

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Check the limits of Amazon's network and file systems."""
        yield from super().problems(stack)
        # Amazon's network plugin gives pods addresses of the network, so users must reach them.
        yield from blocked_pods(stack, self.network)
        yield from self._address_problems(stack)
        yield from self._network_problems(stack)
        yield from self._snapshot_problems(stack)
        yield from self._lustre_problems(stack)

    def _address_problems(self, stack: Settings) -> Iterator[Problem]:
        """Require addresses for all workers and their pods in one subnet, which they share."""
        machines = 0
        for nodeset in stack.nodesets:
            bounds = self.bounds(nodeset)
            machines += bounds.max if bounds else nodeset.replicas
        length = ipaddress.ip_network(self.network).prefixlen + SUBNET_BITS
        addresses = (1 << 32 - length) - _OF_AMAZON
        if machines * _OF_A_MACHINE > addresses:
            yield (
                "cluster.network",
                (
                    f"'{self.network}': the workers' subnet, a /{length}, has {addresses} "
                    f"addresses; expected at least {machines * _OF_A_MACHINE}, because each of "
                    f"the {machines} machines needs {_OF_A_MACHINE}; choose a larger range before "
                    "the first deploy, or lower replicas"
                ),
            )

    def _network_problems(self, stack: Settings) -> Iterator[Problem]:
        """Allow Cilium only on top of Amazon's plugin and with kube-proxy: EKS installs both."""
        cilium = stack.network.cilium
        if cilium is None:
            if "cilium" in stack.network.kinds():
                yield (
                    "network.policies",
                    (
                        f"'{stack.network.policies}': requires Cilium, but EKS comes without it; "
                        f"add network.cilium: {{chained: {AWS_CNI}}}"
                    ),
                )
            return
        if cilium.chained != AWS_CNI:
            chained = f"'{cilium.chained}'" if cilium.chained else "none"
            yield (
                "network.cilium.chained",
                f"{chained}: expected '{AWS_CNI}', because EKS has Amazon's own network plugin",
            )
        if cilium.kube_proxy_replacement:
            yield (
                "network.cilium.kube_proxy_replacement",
                (
                    "true: Cilium cannot replace kube-proxy, because EKS runs kube-proxy; remove "
                    "'kube_proxy_replacement'"
                ),
            )

    def _snapshot_problems(self, stack: Settings) -> Iterator[Problem]:
        """Refuse snapshots of slurmctld's state on EFS: aws-efs-csi-driver has no snapshots."""
        state, controller = stack.snapshots and stack.snapshots.state, stack.controller
        on_efs = self.file_system == "efs" and controller.storage_class is None
        if state and controller.standby and on_efs:
            yield (
                "snapshots.state",
                (
                    f"'{state}': because controller.standby is true, the controller's state is on "
                    "EFS, which has no VolumeSnapshots; remove snapshots.state, or set "
                    "controller.storage_class"
                ),
            )

    def _lustre_problems(self, stack: Settings) -> Iterator[Problem]:
        """Check the size of the Lustre file system, and the storage of a standby controller."""
        if self.file_system == "efs":
            return
        smallest, step = _LUSTRE
        size = stack.jail.size
        if not stack.jail.is_elsewhere() and size != smallest and size % step:
            yield (
                "jail.size",
                (
                    f"{size / 1024:g}GiB: is not a size of FSx for Lustre; expected 1200GiB or a "
                    f"multiple of 2400GiB, such as {max(1, round(size / step)) * step // 1024}GiB"
                ),
            )
        if stack.controller.standby and stack.controller.storage_class is None:
            yield (
                "controller.standby",
                (
                    "true: requires a StorageClass with ReadWriteMany; add "
                    "controller.storage_class, or set cluster.file_system: efs"
                ),
            )
