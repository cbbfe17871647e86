"""Settings of nodes and of the reconciler, from its file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

Step = Literal["recheck", "restart", "reboot", "replace"]
"""A rung of a ladder: check again later, delete the pod, reboot the machine, or replace it."""


class WantedError(Exception):
    """The file cannot be used, so no conclusion is possible; the text is one line that says why."""


class Nodeset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int
    """Number of nodes."""
    cpus: int
    """CPUs of a node, as its record must show them."""
    memory: int
    """MiB, as RealMemory."""
    gpus: int
    """Devices or slices of them."""
    conf: str
    """Node configuration that its pods' slurmd registers; "" if slurm.conf lists the nodes."""


class Wanted(BaseModel):
    """All settings, as `components.slurmconf.wanted_nodes` writes them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodesets: Mapping[str, Nodeset]
    evidence: int | None
    """Seconds after which the last report of a node's checks is too old; None if the settings do
    not have every node checked all the time."""
    interval: int
    """Seconds from the start of a pass to the start of the next."""
    share: float
    """Share of the wanted nodes that the reconciler's drains and repairs may take out at once."""
    maintenance: frozenset[str]
    """Keys of machines' annotations and taints that announce maintenance."""
    conditions: Mapping[str, str]
    """Conditions of machines that are faults if they are true, with the name of the cause."""
    hardware: frozenset[str]
    """Checks that show faults of the machine and not of the pod."""
    ladder: tuple[Step, ...]
    ladders: Mapping[str, tuple[Step, ...]]
    """Ladders of single causes, instead of `ladder`."""
    back_off: int
    """Seconds that the first step has to take effect; each next step has twice as many."""
    replace: tuple[str, ...]
    """Command that replaces a machine; without a command, its Node is deleted."""
    replace_age: int
    """Age in seconds below which a machine is not replaced."""
    remember: int
    """Seconds after which a cause that is gone is forgotten."""
    rollout: int
    """Seconds that nodes have to come up after a deploy."""

    def ladder_of(self, cause: str) -> tuple[Step, ...]:
        return self.ladders.get(cause, self.ladder)

    def replicas(self) -> dict[str, int]:
        return {name: nodeset.replicas for name, nodeset in self.nodesets.items()}

    def nodes(self) -> dict[str, Nodeset]:
        """Return the nodeset of each wanted node by the node's name, in the nodesets' order."""
        return {
            f"{name}-{ordinal}": nodeset
            for name, nodeset in sorted(self.nodesets.items())
            for ordinal in range(nodeset.replicas)
        }


def read(path: Path) -> Wanted:
    """Read the settings. Raises `WantedError` if the file cannot be used."""
    try:
        return Wanted.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        said = " ".join(str(error).split())
        raise WantedError(
            f"{path}: cannot read the settings: {said}; deploy again with images of one version"
        ) from error
