"""Ghosts: records of nodes that nobody asks for any more, and whose slurmd is gone.

A node that leaves in good order takes its record along. One that is killed, or carries somebody
else's drain, or whose nodeset went while Slurm was away, leaves its record behind.
"""

from collections.abc import Iterable, Mapping

from agents.slurm import Node

GONE = frozenset({"DOWN", "NOT_RESPONDING"})
"""States of a node whose slurmd does not answer."""


def is_wanted(node: str, nodesets: Mapping[str, int]) -> bool:
    """Whether a node of this name is one of the nodesets', as `cpu-1` is of `{"cpu": 2}`."""
    nodeset, _, ordinal = node.rpartition("-")
    return ordinal.isdecimal() and int(ordinal) < nodesets.get(nodeset, 0)


def ghosts(nodes: Iterable[Node], nodesets: Mapping[str, int]) -> list[str]:
    """Names of the ghosts among the nodes, in order.

    Only dynamic nodes have a record that can be deleted, and none on which a job still is.
    """
    return sorted(
        node.name
        for node in nodes
        if "DYNAMIC_NORM" in node.state
        and node.state & GONE
        and not node.alloc_cpus
        and not is_wanted(node.name, nodesets)
    )
