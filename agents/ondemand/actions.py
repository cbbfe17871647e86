"""Actions of a plan. The agent skips an action if the state that requires it has changed.

The text of an action is an infinitive, because the action may still fail.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Create:
    node: str
    nodeset: str
    tries: int = 0
    """Number of failed starts in a row before this one."""

    def __str__(self) -> str:
        return f"create the pod of node {self.node}"


@dataclass(frozen=True)
class Delete:
    node: str
    uid: str
    why: str

    def __str__(self) -> str:
        return f"delete the pod of node {self.node}: {self.why}"


@dataclass(frozen=True)
class Wake:
    """Ask Slurm to wake a node without a job."""

    node: str

    def __str__(self) -> str:
        return f"wake node {self.node}, because the settings require more awake nodes now"


@dataclass(frozen=True)
class Sleep:
    """Ask Slurm to put an idle node to sleep. If the node gets a job meanwhile, Slurm waits until
    the job ends."""

    node: str
    why: str

    def __str__(self) -> str:
        return f"put node {self.node} to sleep: {self.why}"


@dataclass(frozen=True)
class Asleep:
    """Report to Slurm that a node's pod is gone, so that the node may wake again at once."""

    node: str

    def __str__(self) -> str:
        return f"mark node {self.node} as asleep in Slurm, because its pod is gone"


@dataclass(frozen=True)
class Lose:
    """Put a node without a pod to sleep. Slurm requeues its jobs, which are lost."""

    node: str

    def __str__(self) -> str:
        return f"put node {self.node} to sleep and requeue its jobs, because its pod is gone"


@dataclass(frozen=True)
class GiveUp:
    """Set a node to DOWN, because the node does not start. Slurm requeues the job that waits for
    the node."""

    node: str
    reason: str
    tries: int
    """Number of failed starts in a row. Includes this start, unless only the ceiling of costs
    prevented this start."""

    def __str__(self) -> str:
        return f"set node {self.node} to DOWN, because the node did not start: {self.reason}"


@dataclass(frozen=True)
class Retry:
    """Let Slurm use a node again after a failed start."""

    node: str
    reason: str
    """Reason of the node in Slurm. The agent skips the action if the reason has changed."""

    def __str__(self) -> str:
        return f"let node {self.node} start again after an earlier failure"


@dataclass(frozen=True)
class Started:
    """Forget the failed starts of a node that has started, and end the agent's drain of the
    node."""

    node: str

    def __str__(self) -> str:
        return f"forget the failed starts of node {self.node}, because the node has started"


@dataclass(frozen=True)
class Hold:
    """Drain a sleeping node that would exceed the ceiling of costs."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"drain node {self.node}, so that the node does not start: {self.reason}"


@dataclass(frozen=True)
class Release:
    """End the drain of a node that `Hold` has drained."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"end the drain '{self.reason}' of node {self.node}"


Action = Create | Delete | Wake | Sleep | Asleep | Lose | GiveUp | Retry | Started | Hold | Release
