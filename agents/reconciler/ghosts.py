"""Find *ghosts*: records in Slurm of nodes that have no slurmd and are no longer in the settings.

A node deletes its record when it stops. The record remains if

- the node was killed,
- a person or another program has drained the node, or
- its nodeset was removed while Slurm was unavailable.
"""

from collections.abc import Iterable, Mapping

from agents.slurm import Node

GONE = frozenset({"DOWN", "NOT_RESPONDING"})
"""States of a node if its slurmd does not respond."""


def is_wanted(node: str, nodesets: Mapping[str, int]) -> bool:
    """Return whether a node belongs to the nodesets, such as `cpu-1` to `{"cpu": 2}`."""
    nodeset, _, ordinal = node.rpartition("-")
    return ordinal.isdecimal() and int(ordinal) < nodesets.get(nodeset, 0)


def ghosts(nodes: Iterable[Node], nodesets: Mapping[str, int]) -> list[str]:
    """Return the sorted names of the ghosts among the nodes.

    A record can be deleted only if its node is dynamic and has no job.
    """
    return sorted(
        node.name
        for node in nodes
        if "DYNAMIC_NORM" in node.state
        and node.state & GONE
        and not node.is_allocated
        and not is_wanted(node.name, nodesets)
    )
