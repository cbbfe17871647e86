"""Render the settings of nodes on demand, for slurmctld and for agents/ondemand."""

import json
from collections.abc import Sequence

from agents.ondemand.wanted import Hours as WantedHours
from agents.ondemand.wanted import Nodeset as WantedNodeset
from agents.ondemand.wanted import Wanted
from components import conventions as c
from components.settings import Nodeset, Settings
from components.settings.ondemand import DAYS, Hours, OnDemand

_NEVER = 10 * 365 * 24 * 3600
"""SuspendTime in seconds, ten years: Slurm itself must not put nodes to sleep, because the agent
`ondemand` does this. Without this parameter, Slurm would disable its power saving."""
SUSPEND_TIMEOUT = 120
"""Seconds after which Slurm marks a node that stops as powered down, even without a report from the
agent. The agent does not report nodes that are out of service, because the report would end their
drain."""
_MARGIN = 120
"""Slurm waits for the start of a node this many seconds longer than the agent does. The agent thus
reports a failed start first, and gives the reason."""


def power(settings: Settings) -> dict[str, object]:
    """Return the lines of slurm.conf for power saving, if a nodeset has nodes on demand."""
    chosen = [nodeset.on_demand for nodeset in settings.nodesets if nodeset.on_demand]
    if not chosen:
        return {}
    return {
        "SuspendProgram": c.POWER_PROGRAM,
        "ResumeProgram": c.POWER_PROGRAM,
        "ResumeFailProgram": c.POWER_PROGRAM,
        "SuspendTime": _NEVER,
        "SuspendTimeout": SUSPEND_TIMEOUT,
        "ResumeTimeout": max(each.start for each in chosen) + _MARGIN,
        # 0 means no limit, so that all nodes of a job wake at the same time.
        "SuspendRate": 0,
        "ResumeRate": 0,
        # Otherwise Slurm would also put dynamic nodes to sleep.
        "SuspendExcStates": "DYNAMIC_NORM",
    }


def wanted_on_demand(settings: Settings) -> str:
    wanted = Wanted(
        nodesets={
            nodeset.name: _wanted(nodeset.replicas, nodeset.on_demand)
            for nodeset in settings.nodesets
            if nodeset.on_demand
        },
        ceiling=settings.on_demand.ceiling,
    )
    content = wanted.model_dump(mode="json")
    for nodeset in content["nodesets"].values():
        nodeset["keep"].sort()
        for hours in nodeset["schedule"]:
            hours["days"].sort()
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def cost_on_demand(settings: Settings) -> str:
    """Describe the highest and the lowest cost of the nodes for an hour; "" without prices."""
    nodesets = [(each, each.on_demand) for each in settings.nodesets if each.on_demand]
    priced = [(each, chosen, chosen.price) for each, chosen in nodesets if chosen.price is not None]
    if not priced:
        return ""
    free = [each.name for each, chosen in nodesets if chosen.price is None]
    others = f"; not counted, because no price is set: {', '.join(free)}" if free else ""
    highest = _highest(priced, settings.on_demand.ceiling)
    return f"at most {highest}, at least {_lowest(priced)}{others}"


_Priced = Sequence[tuple[Nodeset, OnDemand, float]]


def _highest(priced: _Priced, ceiling: float | None) -> str:
    total = sum(nodeset.replicas * price for nodeset, _, price in priced)
    names = ", ".join(nodeset.name for nodeset, _, _ in priced)
    number = sum(nodeset.replicas for nodeset, _, _ in priced)
    nodes = f"{'all ' if number > 1 else ''}{_count(number)} of {names}"
    if ceiling is None or total <= ceiling:
        return f"{_price(total)} an hour ({nodes})"
    return f"{_price(ceiling)} an hour (ceiling; {nodes} together would cost {_price(total)})"


def _lowest(priced: _Priced) -> str:
    always = [(chosen.min, price) for _, chosen, price in priced]
    scheduled = [(chosen.largest_min(), price) for _, chosen, price in priced]
    text = f"{_cost(always)} ({_count(sum(nodes for nodes, _ in always))} always awake)"
    if scheduled == always:
        return text
    most = _count(sum(nodes for nodes, _ in scheduled))
    return f"{text}, in scheduled hours up to {_cost(scheduled)} ({most})"


def _cost(nodes_and_prices: Sequence[tuple[int, float]]) -> str:
    return _price(sum(nodes * price for nodes, price in nodes_and_prices))


def _price(amount: float) -> str:
    """Format an amount of money with at most four decimals and without trailing zeros."""
    return f"{amount:.4f}".rstrip("0").rstrip(".")


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _wanted(replicas: int, chosen: OnDemand) -> WantedNodeset:
    return WantedNodeset(
        max=replicas,
        min=chosen.min,
        idle=chosen.idle,
        start=chosen.start,
        keep=frozenset(chosen.keep),
        schedule=tuple(map(_hours, chosen.schedule)),
        price=chosen.price or 0.0,
    )


def _hours(hours: Hours) -> WantedHours:
    return WantedHours(
        days=frozenset(map(DAYS.index, hours.days)),
        begin=_minutes(hours.begin),
        end=_minutes(hours.end),
        min=hours.min,
    )


def _minutes(time: str) -> int:
    hour, minute = map(int, time.split(":"))
    return hour * 60 + minute
