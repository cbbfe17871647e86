"""Settings of long checks, from the file that `components.slurmconf.longchecks` writes."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from agents.longchecks.judge import Rule
from agents.longchecks.registry import CHECKS, Check


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Nodeset(_Part):
    """Nodeset: nodes of one kind, such as `gpu-0` and `gpu-1`."""

    replicas: int
    """Number of nodes."""
    gpu_type: str = ""
    gpus: int = 0
    """Number of GPUs of a node."""


class Chosen(_Part):
    """Settings of one check."""

    nodesets: tuple[str, ...]
    """Names of the nodesets on which the check runs."""
    threshold: float | None = None
    """Threshold that replaces the check's default threshold."""
    fall: float
    history: int
    least: int


class Wanted(_Part):
    """All settings of long checks."""

    partition: str
    """Hidden partition for the jobs."""
    user: str
    """User who submits the jobs."""
    logs: str
    """Path of the folder with the jobs' outputs, as nodes see it."""
    at_once: int
    """Maximum number of jobs that a run submits at the same time."""
    wait: int
    """Seconds for which a run waits for a free node. Then the run ends."""
    keep: int
    """Number of measurements to keep for each check and node."""
    nodesets: dict[str, Nodeset]
    checks: dict[str, Chosen]

    def rule(self, check: Check, node: str) -> Rule:
        """Return the limits for a check's values on a node."""
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
        """Return a check by name. Raises `ValueError` if it is unknown or not enabled."""
        if name not in self.checks or name not in CHECKS:
            on = ", ".join(sorted(self.checks)) or "none"
            raise ValueError(
                f"long check '{name}': is not enabled; enabled in 'long_checks.checks': {on}; "
                f"add '{name}' there and deploy"
            )
        return CHECKS[name]

    def is_of(self, check: Check, node: str) -> bool:
        """Return whether the check runs on a node."""
        return nodeset_of(node) in self.checks[check.name].nodesets

    def nodes(self, check: Check) -> Iterator[str]:
        """Yield the nodes on which the check runs."""
        for name in self.checks[check.name].nodesets:
            for ordinal in range(self.nodesets[name].replicas):
                yield f"{name}-{ordinal}"


def nodeset_of(node: str) -> str:
    """Return the nodeset of a node, such as `gpu` for `gpu-3`."""
    return node.rpartition("-")[0]
