"""Read and write drain reasons and the last check results of a node.

Each drain reason that slurmstack sets starts with `slurmstack:`. The source of the drain follows,
for example `check:disk`.
This module needs only the standard library, because nothing else is available on every node.
"""

import json
from dataclasses import dataclass

OWN = "slurmstack:"
"""Prefix of every drain reason that slurmstack sets."""
CHECK = f"{OWN}check:"
"""Prefix of a check's drain: `slurmstack:check:disk: /tmp is full (97 %)`."""
LONGCHECK = f"{OWN}longcheck:"
"""Prefix of a long check's drain: `slurmstack:longcheck:nccl: 212 GB/s, expected at least 460`."""
KUBERNETES = f"{OWN}kubernetes:"
"""Prefix of a drain whose cause is a state in Kubernetes: `slurmstack:kubernetes:cordoned: …`."""
START = f"{OWN}start:"
"""Prefix of the reason why a node on demand is DOWN after it did not start:
`slurmstack:start:capacity: …`."""
COST = f"{OWN}cost: "
"""Prefix of the drain reason of a sleeping node on demand. With this node awake, the nodes would
cost more than the ceiling of costs (`on_demand.ceiling`)."""
PODS = f"{OWN}pods: "
"""Prefix of the drain reason of a node that has lost its jobs, while pods of these jobs still run.
agents/bridge sets and lifts this drain."""
ROLL = f"{OWN}roll"
"""Prefix of the drain reason of a node whose outdated pod will be replaced when its jobs end."""
NOT_RESPONDING = "Not responding"
"""Start of the reason that slurmctld gives a node that stopped responding (source:
ping_nodes.c)."""
LONGEST_NAME = 63
"""Maximum length of a check's name, in characters. The limit is necessary because the reconciler
stores these names, and root on a worker could send very long ones."""
LEAVE = f"{OWN}leave"
"""Drain reason of a node whose pod is stopping. The script images/worker/leave sets it."""
_MARK = "slurmstack"


def is_own(reason: str) -> bool:
    return reason.startswith(OWN)


@dataclass(frozen=True)
class Evidence:
    """Last check results of a node, stored in the `extra` field of its Slurm record.

    The field is a JSON object in one line: with SchedulerParameters=extra_constraints, slurmctld
    accepts nothing else (source: update_node in node_mgr.c, Slurm 24.11).
    """

    at: int
    """Seconds since 1970."""
    failed: tuple[str, ...] = ()
    """Sorted names of the failed checks that drain the node."""
    unknown: tuple[str, ...] = ()
    """Sorted names of the checks that could not run."""

    def __str__(self) -> str:
        return json.dumps(self.fields(), separators=(",", ":"))

    def fields(self) -> dict[str, object]:
        return {_MARK: {"at": self.at, "failed": self.failed, "unknown": self.unknown}}

    @classmethod
    def parse(cls, extra: str) -> "Evidence | None":
        """Return the evidence in a node's `extra` field, or None if the field contains no
        evidence."""
        try:
            fields = json.loads(extra)[_MARK]
            at, failed, unknown = (fields[key] for key in ("at", "failed", "unknown"))
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        if type(at) is not int or not _are_names(failed) or not _are_names(unknown):
            return None
        return cls(at, tuple(failed), tuple(unknown))


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(name, str) and len(name) <= LONGEST_NAME for name in value
    )
