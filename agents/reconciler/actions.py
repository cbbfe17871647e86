"""Actions of a plan.

Each action contains the state that requires the action. The reconciler skips the action if this
state has changed.
"""

from dataclasses import dataclass
from datetime import datetime

from agents.reconciler.memory import Key


@dataclass(frozen=True)
class Forget:
    """Delete the Slurm record of a node that has no slurmd and is not in the settings."""

    node: str

    def __str__(self) -> str:
        return f"{self.node}: record deleted: not in the settings, and its slurmd is gone"


@dataclass(frozen=True)
class Drain:
    """Drain a node that is not drained yet."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: drained: {self.reason}"


@dataclass(frozen=True)
class Lift:
    """Return a node to service if its drain still has this reason and time."""

    node: str
    reason: str
    since: datetime | None

    def __str__(self) -> str:
        return f"{self.node}: back in service; was drained for {self.reason}"


@dataclass(frozen=True)
class Requeue:
    """Set a node that slurmstack has drained to DOWN, so that Slurm requeues the node's jobs."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: set to DOWN to requeue its jobs: slurmd and machine do not respond"


@dataclass(frozen=True)
class Mark:
    machine: str
    text: str

    def __str__(self) -> str:
        return f"machine {self.machine}: marked unhealthy: {self.text}"


@dataclass(frozen=True)
class Unmark:
    machine: str

    def __str__(self) -> str:
        return f"machine {self.machine}: no longer marked unhealthy"


@dataclass(frozen=True)
class Withdraw:
    machine: str

    def __str__(self) -> str:
        return f"machine {self.machine}: reboot request withdrawn"


@dataclass(frozen=True)
class Restart:
    """Delete a pod. Its StatefulSet creates a new one."""

    key: Key
    uid: str

    def __str__(self) -> str:
        return f"{self.key[0]}: pod restarted because of {self.key[1]}"


@dataclass(frozen=True)
class Reboot:
    """Request a reboot from the rebooter on a machine."""

    key: Key
    machine: str
    boot: str
    at: int

    def __str__(self) -> str:
        return f"{self.key[0]}: reboot of machine {self.machine} requested because of {self.key[1]}"


@dataclass(frozen=True)
class Replace:
    key: Key
    machine: str
    uid: str
    provider: str

    def __str__(self) -> str:
        return (
            f"{self.key[0]}: replacement of machine {self.machine} requested because of "
            f"{self.key[1]}"
        )


@dataclass(frozen=True)
class Tell:
    """Report that no repair step remains, so a person is needed."""

    key: Key
    text: str

    def __str__(self) -> str:
        return (
            f"{self.key[0]}: a person is needed, no repair step remains: {self.key[1]}: {self.text}"
        )


@dataclass(frozen=True)
class Schedule:
    """Let Kubernetes schedule a pod: on the node's machine, or anywhere if the node has none."""

    node: str
    uid: str
    machine: str = ""
    hostname: str = ""
    """Value of the machine's label `kubernetes.io/hostname`."""

    def __str__(self) -> str:
        place = f"on its machine {self.machine}" if self.machine else "on any machine"
        return f"{self.node}: pod may start {place}"


@dataclass(frozen=True)
class Free:
    """Delete a pod that waits for a machine that is gone. Its StatefulSet creates a new one."""

    node: str
    uid: str
    hostname: str

    def __str__(self) -> str:
        return f"{self.node}: pod replaced: its machine {self.hostname} is gone"


@dataclass(frozen=True)
class Renew:
    """Delete an outdated pod of a node without jobs. Its StatefulSet creates a new one."""

    node: str
    uid: str
    has_record: bool
    """Whether slurmctld has a record of the node. If so, a job may have started meanwhile."""

    def __str__(self) -> str:
        return f"{self.node}: pod replaced: its settings have changed"


Repair = Restart | Reboot | Replace | Tell
"""Repair steps that follow each other until the problem is solved (`agents.reconciler.ladder`)."""
Action = (
    Forget | Drain | Lift | Requeue | Renew | Schedule | Free | Mark | Unmark | Withdraw | Repair
)
