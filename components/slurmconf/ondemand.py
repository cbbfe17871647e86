"""Render the settings of nodes on demand, for slurmctld and for agents/ondemand."""

import json

from agents.ondemand.wanted import Hours as WantedHours
from agents.ondemand.wanted import Nodeset as WantedNodeset
from agents.ondemand.wanted import Wanted
from components import conventions as c
from components.settings import Settings
from components.settings.ondemand import DAYS, Hours, OnDemand

_NEVER = 10 * 365 * 24 * 3600
"""Seconds without a job after which Slurm itself would put a node to sleep. Without a time, Slurm
disables its power saving."""
SUSPEND_TIMEOUT = 120
"""Seconds after which Slurm marks a node as powered down without the agent's report. The agent does
not report nodes that are out of service, because the report would end their drain."""
_MARGIN = 120
"""Seconds by which Slurm waits longer for a node's start than the agent, which knows the reason."""


def power(settings: Settings) -> dict[str, object]:
    """Return the lines of slurm.conf for power saving; none without nodes on demand."""
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
        # All nodes of a job wake at once.
        "SuspendRate": 0,
        "ResumeRate": 0,
        # Slurm would also put other nodes to sleep.
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
