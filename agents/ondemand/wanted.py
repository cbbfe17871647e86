"""Read the settings of nodes on demand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agents import wanted

_MINUTES = 60


class Hours(BaseModel):
    """Hours of a week in which a certain number of nodes is awake, even without jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: frozenset[int]
    """Days on which the hours begin; 0 is Monday."""
    begin: int
    """Minutes after midnight, UTC."""
    end: int
    """Minutes after midnight, UTC. If `end` is not after `begin`, the hours end on the next day."""
    min: int
    """Number of nodes that are awake in these hours."""

    def contain(self, moment: datetime) -> bool:
        minute = moment.hour * _MINUTES + moment.minute
        if self.begin < self.end:
            return moment.weekday() in self.days and self.begin <= minute < self.end
        yesterday = (moment.weekday() - 1) % 7
        return (moment.weekday() in self.days and minute >= self.begin) or (
            yesterday in self.days and minute < self.end
        )


class Nodeset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    max: int
    """Number of nodes."""
    min: int
    """Number of nodes that are always awake."""
    idle: int
    """Seconds without a job after which a node goes to sleep."""
    start: int
    """Seconds within which a node must start."""
    keep: frozenset[str]
    """Names of nodes that never go to sleep once they are awake."""
    schedule: tuple[Hours, ...]
    """Hours with a larger `min`."""
    price: float
    """Price of a node for an hour, in the currency of `ceiling`."""

    def warm(self, now: int) -> int:
        """Return the number of nodes that must be awake at a Unix time."""
        moment = datetime.fromtimestamp(now, UTC)
        return max([self.min, *(hours.min for hours in self.schedule if hours.contain(moment))])


class Wanted(BaseModel):
    """All settings, in the format of `components.slurmconf.wanted_on_demand`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodesets: Mapping[str, Nodeset]
    ceiling: float | None
    """Highest price of all nodes on demand for an hour. None: no limit."""

    def nodes(self) -> dict[str, Nodeset]:
        """Return the nodeset of each node, by the node's name, in the order of their numbers."""
        return {
            f"{name}-{ordinal}": nodeset
            for name, nodeset in sorted(self.nodesets.items())
            for ordinal in range(nodeset.max)
        }


def read(path: Path) -> Wanted:
    """Read the settings. Raises `WantedError` if the file is unusable."""
    return wanted.read(path, Wanted)
