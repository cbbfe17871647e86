"""Settings of long checks, which measure nodes that run no jobs."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from components.settings.nodesets import Nodeset
from components.settings.types import (
    Cron,
    MemoryMiB,
    Model,
    Number,
    Seconds,
    StorageClassName,
    cross_field,
    duplicates,
    known_names,
)

LEAST_GPUS: Mapping[str, int] = {
    "cpu-memory": 0,
    "dcgm": 1,
    "gpu-burn": 1,
    "gpu-memory": 1,
    "nccl": 2,
    "nccl-pair": 1,
    "network": 0,
}
"""GPUs that a node must have for each check of agents/longchecks."""


class LongCheck(Model):
    """One long check."""

    name: Literal["cpu-memory", "dcgm", "gpu-burn", "gpu-memory", "nccl", "nccl-pair", "network"]
    enabled: bool = True
    """Run the check on its schedule; false: run it only on demand."""
    schedule: Cron = "30 1 * * *"
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    nodesets: tuple[str, ...] = ()
    """Nodesets to measure; by default all with enough GPUs for the check."""
    threshold: Annotated[float, Field(ge=0), Number] | None = None
    """Lowest good value, in the check's unit; for `dcgm` and `gpu-burn`, the highest good value. By
    default, the known threshold for this type of GPU."""
    fall: Annotated[float, Field(gt=0, lt=1), Number] = 0.15
    """Fraction by which a value may be worse than the node's usual value."""
    history: Annotated[int, Field(ge=3, le=1000), Number] = 20
    """Number of a node's newest values; their median is its usual value."""
    least: Annotated[int, Field(ge=3, le=1000), Number] = 5
    """Minimum number of values before a node is compared with its usual value."""

    @model_validator(mode="after")
    def _history_is_enough(self) -> Self:
        if self.least > self.history:
            raise cross_field(
                "least",
                f"{self.least}: expected at most the setting 'history', which is "
                f"{self.history}; lower 'least', or raise 'history'",
            )
        return self

    def fits(self, nodeset: Nodeset) -> bool:
        """Return whether a nodeset's nodes run jobs, and have enough whole GPUs; MIG slices do not
        count."""
        gpus = nodeset.gpus.count if nodeset.gpus and not nodeset.gpus.mig else 0
        return gpus >= LEAST_GPUS[self.name] and not nodeset.pods_only


class LongChecks(Model):
    """Long checks, their limits, and the volume for their measurements."""

    checks: tuple[LongCheck, ...] = ()
    at_once: Annotated[int, Field(ge=1, le=1000), Number] = 1
    """Limit of nodes, or of node pairs, that a check measures at the same time."""
    wait: Seconds = 3600
    """Seconds that a run waits for one of its remaining nodes to become free."""
    keep: Annotated[int, Field(ge=10, le=10_000), Number] = 100
    """Number of measurements to keep for each check and node."""
    size: MemoryMiB = Field("1GiB", validate_default=True)
    """Size of the volume for measurements."""
    storage_class: StorageClassName | None = None
    """StorageClass of the volume; by default the cluster's default."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for name in duplicates(check.name for check in self.checks):
            raise cross_field("checks", f"two checks are named '{name}'; remove one of them")
        return self

    @model_validator(mode="after")
    def _keeps_the_history(self) -> Self:
        for index, check in enumerate(self.checks):
            if check.history > self.keep:
                raise cross_field(
                    f"checks[{index}].history",
                    f"{check.history}: expected at most long_checks.keep, which is {self.keep}; "
                    "lower 'history', or raise 'keep'",
                )
        return self

    def nodesets_of(self, check: LongCheck, nodesets: tuple[Nodeset, ...]) -> tuple[str, ...]:
        """Return the names of the nodesets that a check measures, sorted."""
        chosen = check.nodesets or [n.name for n in nodesets if check.fits(n)]
        return tuple(sorted(chosen))

    def problems(self, nodesets: tuple[Nodeset, ...]) -> Iterator[tuple[str, str]]:
        """Yield a key and a description for each conflict with the nodesets."""
        known = {nodeset.name: nodeset for nodeset in nodesets}
        for index, check in enumerate(self.checks):
            key = f"checks[{index}]"
            needed = f"{LEAST_GPUS[check.name]} or more whole GPUs"
            for name in check.nodesets:
                if name not in known:
                    yield (
                        f"{key}.nodesets",
                        f"'{name}' is not a nodeset; {known_names(name, known)}",
                    )
                elif known[name].pods_only:
                    problem = "no jobs of users run on nodes with 'pods_only: true'"
                    yield f"{key}.nodesets", f"'{name}': {problem}; remove this nodeset"
                elif not check.fits(known[name]):
                    problem = (
                        f"check '{check.name}' requires nodes with {needed}; remove this nodeset "
                        "from the check"
                    )
                    yield f"{key}.nodesets", f"'{name}': {problem}"
            if not self.nodesets_of(check, nodesets):
                lack = (
                    f"no nodeset has nodes with {needed}"
                    if LEAST_GPUS[check.name]
                    else "the stack has no nodesets for jobs"
                )
                yield f"{key}.name", f"check '{check.name}': {lack}; remove the check"
