"""Find out whether nodes are still starting after a deploy."""

from agents.reconciler.causes import CONFIG, GATED, JAIL, LEAVE, LEAVING, POD, ROLL, SLURMD
from agents.reconciler.judge import views
from agents.reconciler.observed import Observed
from agents.reconciler.roll import roll
from agents.reconciler.wanted import Wanted

_COMING = frozenset({CONFIG, GATED, JAIL, POD, SLURMD, LEAVE, LEAVING})
"""Causes that are normal while a node or its slurmd starts."""


def is_coming(observed: Observed, wanted: Wanted, now: int) -> bool:
    """Return whether the state of a node will soon change, without a person or the end of a job.

    Ignores nodes that have no machine, nodes on an unhealthy machine, and nodes that others
    drained.
    """
    nodes = views(observed, wanted, now)
    kept = {name for name, nodeset in wanted.nodesets.items() if not nodeset.on_demand}
    if kept - observed.updates.keys() or roll(nodes, observed, wanted, {}, now).goes_on:
        return True
    causes = ({finding.cause for finding in view.findings} - {ROLL} for view in nodes.values())
    return any(found and found <= _COMING for found in causes)
