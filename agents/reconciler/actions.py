"""Actions of a plan.

Each action contains the state that requires the action. The reconciler skips the action if this
state has changed. The text of an action is an infinitive, because the action may still fail.
"""

from dataclasses import dataclass
from datetime import datetime

from agents.reconciler.memory import Key


@dataclass(frozen=True)
class Forget:
    """Delete the Slurm record of a node that has no slurmd and is not in the settings."""

    node: str

    def __str__(self) -> str:
        return (
            f"delete the Slurm record of node {self.node}: the settings do not contain the node, "
            "and its slurmd is gone"
        )


@dataclass(frozen=True)
class Drain:
    """Drain a node that is not drained yet."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"drain node {self.node}: {self.reason}"


@dataclass(frozen=True)
class Lift:
    """Return a node to service if its drain still has this reason and time."""

    node: str
    reason: str
    since: datetime | None

    def __str__(self) -> str:
        return f"return node {self.node} to service, and end its drain '{self.reason}'"


@dataclass(frozen=True)
class Requeue:
    """Set a node that slurmstack has drained to DOWN, so that Slurm requeues the node's jobs."""

    node: str
    reason: str

    def __str__(self) -> str:
        return (
            f"set node {self.node} to DOWN, so that Slurm requeues its jobs: its slurmd and its "
            "machine do not respond"
        )


@dataclass(frozen=True)
class Mark:
    machine: str
    text: str

    def __str__(self) -> str:
        return f"mark machine {self.machine} as unhealthy: {self.text}"


@dataclass(frozen=True)
class Unmark:
    machine: str

    def __str__(self) -> str:
        return f"mark machine {self.machine} as healthy again"


@dataclass(frozen=True)
class Withdraw:
    machine: str

    def __str__(self) -> str:
        return f"withdraw the request to reboot machine {self.machine}"


@dataclass(frozen=True)
class Restart:
    """Delete a pod. Its StatefulSet creates a new one."""

    key: Key
    uid: str

    def __str__(self) -> str:
        return f"restart the pod of node {self.key[0]} because of '{self.key[1]}'"


@dataclass(frozen=True)
class Reboot:
    """Request a reboot from the rebooter on a machine."""

    key: Key
    machine: str
    boot: str
    at: int

    def __str__(self) -> str:
        return (
            f"request a reboot of machine {self.machine} because of '{self.key[1]}' on node "
            f"{self.key[0]}"
        )


@dataclass(frozen=True)
class Replace:
    key: Key
    machine: str
    uid: str
    provider: str

    def __str__(self) -> str:
        return (
            f"request the replacement of machine {self.machine} because of '{self.key[1]}' on node "
            f"{self.key[0]}"
        )


@dataclass(frozen=True)
class Tell:
    """Report that no repair step remains, so a person is needed."""

    key: Key
    text: str

    @property
    def message(self) -> str:
        return (
            f"a person must repair node {self.key[0]}, because no repair step remains: "
            f"{self.key[1]}: {self.text}"
        )

    def __str__(self) -> str:
        return f"report that {self.message}"


@dataclass(frozen=True)
class Schedule:
    """Let Kubernetes schedule a pod: on the node's machine, or anywhere if the node has none."""

    node: str
    uid: str
    machine: str = ""
    hostname: str = ""
    """Value of the machine's label `kubernetes.io/hostname`."""

    def __str__(self) -> str:
        place = f"on the machine {self.machine}" if self.machine else "on any machine"
        return f"let the pod of node {self.node} start {place}"


@dataclass(frozen=True)
class Free:
    """Delete a pod that waits for a machine that is gone. Its StatefulSet creates a new one."""

    node: str
    uid: str
    hostname: str

    def __str__(self) -> str:
        return f"replace the pod of node {self.node}, because its machine {self.hostname} is gone"


@dataclass(frozen=True)
class Renew:
    """Delete an outdated pod of a node without jobs. Its StatefulSet creates a new one."""

    node: str
    uid: str
    has_record: bool
    """Whether slurmctld has a record of the node. If so, a job may have started meanwhile."""

    def __str__(self) -> str:
        return f"replace the pod of node {self.node}, because the node's settings have changed"


Repair = Restart | Reboot | Replace | Tell
"""Repair steps that follow each other until the problem is solved (`agents.reconciler.ladder`)."""
Action = (
    Forget | Drain | Lift | Requeue | Renew | Schedule | Free | Mark | Unmark | Withdraw | Repair
)
