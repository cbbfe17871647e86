"""Settings of nodes on demand, which exist only while jobs need them."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from components.conventions import MAX_REPLICAS
from components.settings.types import Model, Number, Seconds, cross_field, matches

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HourMinute = Annotated[
    str,
    matches(
        re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]"),
        "hour",
        "a time of day from '00:00' to '23:59'; midnight is '00:00'",
    ),
]
"""Time of day in UTC."""
Nodes = Annotated[int, Field(ge=0, le=MAX_REPLICAS), Number]
Price = Annotated[float, Field(ge=0), Number]


class Hours(Model):
    """Hours in which more nodes must be awake."""

    days: Annotated[tuple[Day, ...], Field(min_length=1)] = DAYS
    """Days on which the hours begin; by default all."""
    begin: HourMinute
    """Begin in UTC, such as '08:00'."""
    end: HourMinute
    """End in UTC. If `end` is not after `begin`, the hours end on the next day."""
    min: Nodes
    """Number of nodes that are awake."""


class OnDemand(Model):
    """Nodes that start when a job needs them, and stop when they are idle."""

    min: Nodes = 0
    """Number of nodes that are always awake."""
    idle: Seconds = 600
    """Seconds without a job after which a node goes to sleep."""
    start: Annotated[Seconds, Field(ge=30, le=50_000)] = 1200
    """Seconds within which a node must start, including the start of its machine. Otherwise its job
    is requeued."""
    keep: tuple[str, ...] = ()
    """Names of nodes that do not go to sleep once they are awake."""
    schedule: tuple[Hours, ...] = ()
    """Hours in which more than `min` nodes must be awake."""
    price: Price | None = None
    """Price of a node for an hour, in the currency of `on_demand.ceiling`."""

    def largest_min(self) -> int:
        return max([self.min, *(hours.min for hours in self.schedule)])


class OnDemandLimits(Model):
    """Limits for all nodes on demand together."""

    ceiling: Price | None = None
    """Highest price of all nodes on demand for an hour. A node that would raise the price above
    this value does not start. By default, there is no limit."""

    @model_validator(mode="after")
    def _is_positive(self) -> Self:
        if self.ceiling == 0:
            raise cross_field(
                "ceiling",
                "0: no node with a price could start; set the highest price for an hour, or "
                "remove on_demand.ceiling",
            )
        return self
