"""Why a node is out of service: whose drain it is, and what the checks last said of the node.

Plain text on both sides: what writes it runs on every node and has no more than Python itself.
"""

import json
from dataclasses import dataclass

OWN = "slurmstack:"
"""How the reason of every drain of ours begins; a drain of any other reason is somebody else's."""
CHECK = f"{OWN}check:"
"""A check's: `slurmstack:check:disk: /tmp is full (97 %)`."""
LONGCHECK = f"{OWN}longcheck:"
"""A long check's: `slurmstack:longcheck:nccl: 212 GB/s, wanted at least 460`."""
KUBERNETES = f"{OWN}kubernetes:"
"""The reconciler's, for what Kubernetes says: `slurmstack:kubernetes:cordoned: …`."""
_MARK = "slurmstack"


def is_own(reason: str) -> bool:
    return reason.startswith(OWN)


@dataclass(frozen=True)
class Evidence:
    """What the checks of a node said when they last ran, as its record's `extra` keeps it.

    An object of JSON in one line: with SchedulerParameters=extra_constraints slurmctld takes
    nothing else there (update_node in node_mgr.c, 24.11).
    """

    at: int
    """Seconds since 1970."""
    failed: tuple[str, ...] = ()
    """Names of the checks that want the node out of service, sorted."""
    unknown: tuple[str, ...] = ()
    """Names of those that could not be carried out: neither good nor bad, sorted."""

    def __str__(self) -> str:
        return json.dumps(self.fields(), separators=(",", ":"))

    def fields(self) -> dict[str, object]:
        """Return what the record's object has of it."""
        return {_MARK: {"at": self.at, "failed": self.failed, "unknown": self.unknown}}

    @classmethod
    def parse(cls, extra: str) -> "Evidence | None":
        """The evidence in a record, or None where there is none, or something else."""
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
