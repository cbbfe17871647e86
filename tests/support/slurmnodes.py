"""Records of Slurm's nodes, for tests of agents."""

from datetime import UTC, datetime
from typing import Any

from agents.slurm import Node

NOW = 1_800_000_000
"""Default Unix time of a pass."""


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def node(name: str, *state: str, **fields: Any) -> Node:
    """Return the Slurm record of a node. The default state is IDLE."""
    return Node(
        **{
            "name": name,
            "state": frozenset(state or ("IDLE", "DYNAMIC_NORM")),
            "reason": "",
            "reason_time": None,
            "reason_user": "",
            "started": None,
            "cpus": 2,
            "alloc_cpus": 0,
            "memory": 1000,
            "alloc_memory": 0,
            "gres": "gpu:h100:8(S:0-1)",
            "gres_used": "",
            "features": (),
            "partitions": (),
            "comment": "",
            "extra": "",
            "machine": "",
            "last_busy": None,
            **fields,
        }
    )


def drained(name: str, reason: str, *state: str, since: int = NOW - 100, **fields: Any) -> Node:
    flags = state or ("IDLE", "DRAIN", "DYNAMIC_NORM")
    return node(name, *flags, reason=reason, reason_time=moment(since), **fields)
