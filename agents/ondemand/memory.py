"""What the agent remembers from one look to the next.

A restarted agent has forgotten it, and then waits longer before it gives up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Memory:
    recovering: Mapping[str, float] = field(default_factory=dict)
    """Unix time at which a ready pod was first seen, for each node that sleeps or starts."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """UID of the first pod that ended during the current start of each node."""
    troubles: Mapping[str, tuple[str, str, float]] = field(default_factory=dict)
    """Trouble of each starting node's pod: the pod's UID, the kind, and the Unix time at which the
    agent first saw it. Kubernetes' objects do not contain this time."""
    blocked: Mapping[str, float] = field(default_factory=dict)
    """Unix time at which each starting node began to wait for the end of its last pod."""
    starting: frozenset[str] = frozenset()
    """Nodes that were in service at some time of their current start. Slurm wakes a node that is
    out of service only if a person asks for it."""

    def after_outage(self) -> "Memory":
        """Return what holds after a look without an answer.

        A slurmd can register again only when slurmctld has returned, and needs its time for that.
        """
        return replace(self, recovering={})

    def later(self, seconds: float) -> "Memory":
        """Return the memory without a time, in seconds, during which the agent did not look."""
        return replace(
            self, recovering={name: since + seconds for name, since in self.recovering.items()}
        )
