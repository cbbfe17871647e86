"""Data that the agent keeps in memory from one pass to the next.

A restarted agent does not have the data, and therefore waits longer before it gives up a start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Memory:
    recovering: Mapping[str, float] = field(default_factory=dict)
    """Nodes that sleep or start in Slurm although their pod is ready, with the Unix time at which
    the agent first saw this."""
    ended: Mapping[str, str] = field(default_factory=dict)
    """UID of the first pod that ended during the current start of each node."""
    troubles: Mapping[str, tuple[str, str, float]] = field(default_factory=dict)
    """Trouble of each starting node's pod: the pod's UID, the kind, and the Unix time at which the
    agent first saw it. Kubernetes' objects do not contain this time."""
    blocked: Mapping[str, float] = field(default_factory=dict)
    """Unix time at which each starting node began to wait for the end of its last pod."""
    starting: frozenset[str] = frozenset()
    """Nodes that were in service at some time during their current start. Other starting nodes were
    woken by a person, because Slurm itself wakes no node that is out of service."""

    def after_outage(self) -> "Memory":
        """Return the memory after a pass in which Slurm or Kubernetes did not answer.

        A slurmd can register again only after slurmctld has returned. So after the outage, each
        node again gets the full time to register.
        """
        return replace(self, recovering={})

    def later(self, seconds: float) -> "Memory":
        """Return the memory with the times in `recovering` moved by `seconds`, so that these
        seconds do not count towards the time limit."""
        return replace(
            self, recovering={name: since + seconds for name, since in self.recovering.items()}
        )
