"""Read the settings of nodes and of the reconciler."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from agents import labels, wanted

Step = Literal["recheck", "restart", "reboot", "replace"]
"""Repair step: check again later, delete the pod, reboot the machine, or replace it."""


Levels = tuple[tuple[str, ...], ...]
"""Keys of machines' labels for each level of the network, from top to bottom. For each level, the
reconciler uses the first of these labels that a machine has."""


class Topology(BaseModel):
    """Network between nodes, from the labels of their machines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["tree", "block"]
    levels: Levels
    block_sizes: tuple[int, ...] = ()

    def keys(self) -> frozenset[str]:
        """Return the keys of all labels."""
        return frozenset(key for keys in self.levels for key in keys)


class Roll(BaseModel):
    """Settings of the rolling updates of a nodeset, in the annotation `agents.labels.ROLL`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float
    """Share of the nodeset's nodes that may be out of service for the update at the same time."""
    in_maintenance: bool
    """Whether the reconciler updates only nodes in a maintenance reservation."""


class Nodeset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int
    """Number of nodes."""
    cpus: int
    """Number of CPUs that a node's Slurm record must contain."""
    memory: int
    """Memory that a node's Slurm record must contain (RealMemory), in MiB."""
    gpus: int
    """Number of GPUs or MIG slices of each node."""
    conf: str
    """Node configuration that slurmd registers, or "" if slurm.conf lists the nodes."""
    on_demand: bool = False
    """Whether agents/ondemand starts and stops the nodes."""
    keep_machine: bool = False
    """Whether each node returns to its machine."""


class Wanted(BaseModel):
    """All settings, in the format of `components.slurmconf.wanted_nodes`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodesets: Mapping[str, Nodeset]
    evidence: int | None
    """Seconds after which the last report of a node's checks is too old. None if the settings do
    not enable checks at an interval on every node."""
    interval: int
    """Seconds from the start of a pass to the start of the next."""
    share: float
    """Share of the wanted nodes that drains and repairs together may keep out of service."""
    maintenance: frozenset[str]
    """Keys of machines' annotations and taints that announce maintenance."""
    conditions: Mapping[str, str]
    """Types of machines' conditions that show a fault while their status is True. The value is the
    name of the cause."""
    hardware: frozenset[str]
    """Checks that detect faults of the machine, not of the pod."""
    ladder: tuple[Step, ...]
    ladders: Mapping[str, tuple[Step, ...]]
    """Ladders (lists of repair steps) for single causes. They replace `ladder`."""
    back_off: int
    """Seconds that the first repair step gets to take effect. The time doubles with each further
    step."""
    replace: tuple[str, ...]
    """Command that replaces a machine. Without a command, the reconciler deletes the Node."""
    replace_age: int
    """The reconciler replaces no machine that is younger than this number of seconds."""
    remember: int
    """Seconds after which the reconciler forgets a resolved cause."""
    rollout: int
    """Seconds that nodes get to start after a deploy."""
    topology: Topology | None = None
    """None if labels do not define the topology."""

    def ladder_of(self, cause: str) -> tuple[Step, ...]:
        return self.ladders.get(cause, self.ladder)

    def label_keys(self) -> frozenset[str]:
        """Return the keys of all machines' labels that the reconciler uses."""
        names = frozenset({labels.HOSTNAME}) if self.keeps_machines() else frozenset()
        return names | (self.topology.keys() if self.topology else frozenset())

    def keeps_machines(self) -> bool:
        return any(nodeset.keep_machine for nodeset in self.nodesets.values())

    def replicas(self) -> dict[str, int]:
        return {name: nodeset.replicas for name, nodeset in self.nodesets.items()}

    def nodes_of(self, nodeset: str) -> list[str]:
        """Return the names of a nodeset's wanted nodes."""
        return [f"{nodeset}-{ordinal}" for ordinal in range(self.nodesets[nodeset].replicas)]

    def nodes(self) -> dict[str, Nodeset]:
        """Return the nodeset of each wanted node, by the node's name and sorted by nodeset."""
        return {
            node: nodeset
            for name, nodeset in sorted(self.nodesets.items())
            for node in self.nodes_of(name)
        }


def read(path: Path) -> Wanted:
    """Read the settings. Raises `WantedError` if the file is unusable."""
    return wanted.read(path, Wanted)
