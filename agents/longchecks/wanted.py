"""What the settings want of long checks, as `components.slurmconf.longchecks` writes it."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from agents.longchecks.judge import Rule
from agents.longchecks.registry import CHECKS, Check


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Nodeset(_Part):
    """Nodes of one kind."""

    replicas: int
    """Number of nodes."""
    gpu_type: str = ""
    gpus: int = 0
    """GPUs of a node."""


class Chosen(_Part):
    """What is chosen for one check."""

    nodesets: tuple[str, ...]
    """Names of the nodesets that it is run on."""
    threshold: float | None = None
    """In place of the check's own."""
    fall: float
    history: int
    least: int


class Wanted(_Part):
    """All of it."""

    partition: str
    """The hidden partition that the jobs are in."""
    user: str
    """Whose the jobs are."""
    logs: str
    """Folder of the jobs' outputs, as jobs see it."""
    at_once: int
    """Most jobs of one run at a time."""
    wait: int
    """Seconds for which a run waits while none of the nodes that are left is free."""
    keep: int
    """Measurements that are kept of each check and node."""
    nodesets: dict[str, Nodeset]
    checks: dict[str, Chosen]

    def rule(self, check: Check, node: str) -> Rule:
        """What a check's values on a node are held against."""
        chosen, nodeset = self.checks[check.name], self.nodesets[nodeset_of(node)]
        threshold = chosen.threshold
        if threshold is None:
            threshold = check.default_threshold(nodeset.gpu_type, nodeset.gpus)
        return Rule(
            unit=check.unit,
            higher_is_better=check.higher_is_better,
            threshold=threshold,
            fall=chosen.fall,
            history=chosen.history,
            least=chosen.least,
        )

    def check(self, name: str) -> Check:
        """Raises `ValueError` for one that is unknown, or not on."""
        if name not in self.checks or name not in CHECKS:
            on = ", ".join(sorted(self.checks)) or "none"
            raise ValueError(f"{name}: is not on; expected one of long_checks.checks: {on}")
        return CHECKS[name]

    def is_of(self, check: Check, node: str) -> bool:
        """Whether a node is one that the check is run on."""
        return nodeset_of(node) in self.checks[check.name].nodesets

    def nodes(self, check: Check) -> Iterator[str]:
        """The nodes that the check is run on."""
        for name in self.checks[check.name].nodesets:
            for ordinal in range(self.nodesets[name].replicas):
                yield f"{name}-{ordinal}"


def nodeset_of(node: str) -> str:
    """The nodeset `gpu` of a node `gpu-3`."""
    return node.rpartition("-")[0]
