"""Why a node is out of service: whose drain it is, and what the checks last said of the node.

Plain text on both sides: what writes it runs on every node and has no more than Python itself.
"""

from dataclasses import dataclass

OWN = "slurmstack:"
"""How the reason of every drain of ours begins; a drain of any other reason is somebody else's."""
CHECK = f"{OWN}check:"
"""A check's: `slurmstack:check:disk: /tmp is full (97 %)`."""
LONGCHECK = f"{OWN}longcheck:"
"""A long check's: `slurmstack:longcheck:nccl: 212 GB/s, wanted at least 460`."""
KUBERNETES = f"{OWN}kubernetes:"
"""The reconciler's, for what Kubernetes says: `slurmstack:kubernetes:cordoned: …`."""
_MARK = f"{OWN}checks"


def is_own(reason: str) -> bool:
    return reason.startswith(OWN)


@dataclass(frozen=True)
class Evidence:
    """What the checks of a node said when they last ran, as its record's `extra` keeps it."""

    at: int
    """Seconds since 1970."""
    failed: tuple[str, ...] = ()
    """Names of the checks that want the node out of service, sorted."""
    unknown: tuple[str, ...] = ()
    """Names of those that could not be carried out: neither good nor bad, sorted."""

    def __str__(self) -> str:
        failed, unknown = (",".join(names) or "none" for names in (self.failed, self.unknown))
        return f"{_MARK} at={self.at} failed={failed} unknown={unknown}"

    @classmethod
    def parse(cls, extra: str) -> "Evidence | None":
        """The evidence in a record, or None where there is none, or something else."""
        words = extra.split()
        if len(words) != 4 or words[0] != _MARK:
            return None
        fields = dict(word.partition("=")[::2] for word in words[1:])
        try:
            failed, unknown = (_names(fields[key]) for key in ("failed", "unknown"))
            return cls(int(fields["at"]), failed, unknown)
        except (KeyError, ValueError):
            return None


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(text.split(","))
