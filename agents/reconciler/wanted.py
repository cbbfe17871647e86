"""What the settings want of nodes and of the reconciler, as its file says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

Step = Literal["recheck", "restart", "reboot", "replace"]
"""A rung of a ladder: look again later, delete the pod, reboot the machine, have another one."""


class WantedError(Exception):
    """The file cannot be used; one line that says why. Nothing is to be concluded then."""


class Nodeset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int
    """Number of nodes."""
    cpus: int
    """Of a node, as its record must show them."""
    memory: int
    """MiB, as RealMemory."""
    gpus: int
    """Devices or slices of them."""
    conf: str
    """What its pods' slurmd says when it registers; "" where slurm.conf lists the nodes."""


class Wanted(BaseModel):
    """Written by `components.slurmconf.wanted_nodes`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodesets: Mapping[str, Nodeset]
    evidence: int | None
    """Seconds after which what a node's checks said last is too old; None where the settings do not
    have every node looked at all the time."""
    interval: int
    """Seconds from the beginning of a pass to that of the next."""
    share: float
    """Of the wanted nodes, how many may be out at once by drains and repairs of ours."""
    maintenance: frozenset[str]
    """Keys of annotations and taints of machines by which maintenance is announced."""
    conditions: Mapping[str, str]
    """Conditions of machines that are faults when they are true, with the name of the cause."""
    hardware: frozenset[str]
    """Checks that speak of the machine and not of the pod."""
    ladder: tuple[Step, ...]
    ladders: Mapping[str, tuple[Step, ...]]
    """Ladders of single causes, in place of `ladder`."""
    back_off: int
    """Seconds that the first step is given, the next twice as many, and so on."""
    replace: tuple[str, ...]
    """Command that has a machine replaced; with none its Node is deleted."""
    replace_age: int
    """Seconds; a younger machine is not replaced."""
    remember: int
    """Seconds after which a cause that went away is forgotten."""
    rollout: int
    """Seconds that the look after a deploy gives nodes to come up."""

    def ladder_of(self, cause: str) -> tuple[Step, ...]:
        return self.ladders.get(cause, self.ladder)

    def replicas(self) -> dict[str, int]:
        return {name: nodeset.replicas for name, nodeset in self.nodesets.items()}

    def nodes(self) -> dict[str, Nodeset]:
        """Each wanted node's nodeset by the node's name, in the order of the nodesets."""
        return {
            f"{name}-{ordinal}": nodeset
            for name, nodeset in sorted(self.nodesets.items())
            for ordinal in range(nodeset.replicas)
        }


def read(path: Path) -> Wanted:
    """Raises `WantedError`."""
    try:
        return Wanted.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        said = " ".join(str(error).split())
        raise WantedError(
            f"{path}: cannot be used: {said}; deploy again with the images of the same version"
        ) from error
