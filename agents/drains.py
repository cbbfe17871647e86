"""Reasons of drains, which name their source, and the last result of a node's checks.

Both are plain text: the program that writes them runs on every node, where only the standard
library is available.
"""

import json
from dataclasses import dataclass

OWN = "slurmstack:"
"""Prefix of the reasons of slurmstack's drains. Other reasons are not slurmstack's."""
CHECK = f"{OWN}check:"
"""Prefix for a check: `slurmstack:check:disk: /tmp is full (97 %)`."""
LONGCHECK = f"{OWN}longcheck:"
"""Prefix for a long check: `slurmstack:longcheck:nccl: 212 GB/s, expected at least 460`."""
KUBERNETES = f"{OWN}kubernetes:"
"""Prefix for the reconciler, for a state in Kubernetes: `slurmstack:kubernetes:cordoned: …`."""
_MARK = "slurmstack"


def is_own(reason: str) -> bool:
    return reason.startswith(OWN)


@dataclass(frozen=True)
class Evidence:
    """Result of the last checks of a node, as stored in the `extra` field of its record.

    It is a JSON object in one line: with SchedulerParameters=extra_constraints, slurmctld accepts
    nothing else there (update_node in node_mgr.c, 24.11).
    """

    at: int
    """Seconds since 1970."""
    failed: tuple[str, ...] = ()
    """Names of the failed checks that drain the node, sorted."""
    unknown: tuple[str, ...] = ()
    """Names of the checks that could not be carried out, so neither passed nor failed, sorted."""

    def __str__(self) -> str:
        return json.dumps(self.fields(), separators=(",", ":"))

    def fields(self) -> dict[str, object]:
        """Return the evidence's part of the record's JSON object."""
        return {_MARK: {"at": self.at, "failed": self.failed, "unknown": self.unknown}}

    @classmethod
    def parse(cls, extra: str) -> "Evidence | None":
        """Return the evidence in a record's `extra`, or None if it holds no evidence."""
        try:
            fields = json.loads(extra)[_MARK]
            at, failed, unknown = (fields[key] for key in ("at", "failed", "unknown"))
        except (KeyError, TypeError, ValueError):
            return None
        if type(at) is not int or not _are_names(failed) or not _are_names(unknown):
            return None
        return cls(at, tuple(failed), tuple(unknown))


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
