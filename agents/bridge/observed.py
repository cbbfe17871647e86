"""Observed state: pods of the bridge, their jobs in Slurm, and the machines of nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents import labels
from agents.bridge.fit import Machine
from agents.bridge.identity import Identity
from agents.bridge.podspec import Spec
from agents.bridge.size import Amounts
from agents.bridge.volumes import Needs
from agents.bridge.wishes import Wishes

ENDED = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"),
    }
)
"""States of jobs that have ended."""
ENDING = ENDED | {"COMPLETING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "STOPPED", "SUSPENDED"}
"""States in which a job's pods must stop. A suspended job is among them: Slurm gives its CPUs to
other jobs, but Kubernetes cannot suspend a pod."""


@dataclass(frozen=True)
class Request:
    """What a gang wants from Slurm."""

    name: str
    identity: Identity
    wishes: Wishes
    spec: Spec
    """Spec of a pod, which decides which machines are allowed."""
    size: Amounts
    """Largest request among the gang's pods."""
    limits: Amounts = field(default_factory=dict)
    """What a pod of the gang may use, if this is more than its request."""
    volumes: Needs = field(default_factory=Needs)
    """What the pod's volumes need of its machine."""


@dataclass(frozen=True)
class Pod:
    namespace: str
    name: str
    uid: str
    version: str
    """`resourceVersion`."""
    created: float
    """Unix time."""
    gang: str
    gang_size: int
    request: Request | None
    """None if the pod can never have a job; `problem` says why."""
    problem: str = ""
    job: int | None = None
    """Job that the pod is linked to."""
    machine: str = ""
    """Machine that the pod is bound to, or ""."""
    stops_by: float | None = None
    """Unix time by which Kubernetes stops the pod's containers, or None if the pod is not
    terminating."""
    has_stopped: bool = False
    """Whether all containers have stopped, and none starts again."""
    has_succeeded: bool = False
    is_held_back: bool = False
    """Whether the pod has a scheduling gate."""
    finalizers: tuple[str, ...] = ()
    said: str = ""
    """Message in the pod's condition `PodScheduled`."""

    @property
    def leaves(self) -> bool:
        """Whether the pod is terminating."""
        return self.stops_by is not None

    @property
    def is_guarded(self) -> bool:
        """Whether Kubernetes keeps the pod, when it is deleted, until the bridge releases it."""
        return labels.BRIDGE in self.finalizers


@dataclass(frozen=True)
class Share:
    """What a job has on a node."""

    cpus: int
    memory: int
    """MiB."""
    gpus: int = 0


@dataclass(frozen=True)
class Job:
    id: int
    gang: str
    pods: int
    """Number of pods for which the job was submitted."""
    state: frozenset[str]
    reason: str = ""
    started: float = 0.0
    """Unix time, or 0 before the start."""
    shares: Mapping[str, Share] = field(default_factory=dict)
    """Share of each node, by the node's name. Empty before the job starts."""
    excluded: frozenset[str] = frozenset()
    """Nodes that the job must not use."""

    @property
    def is_ending(self) -> bool:
        return bool(self.state & ENDING)

    @property
    def is_over(self) -> bool:
        """Whether Slurm has ended the job. Its pods may still run."""
        return bool(self.state & (ENDED | {"COMPLETING"}))

    @property
    def has_ended(self) -> bool:
        """Whether Slurm has also freed the job's resources."""
        return bool(self.state & ENDED) and "COMPLETING" not in self.state

    @property
    def runs(self) -> bool:
        """Whether the job has its nodes. Their prologs may still run."""
        return "RUNNING" in self.state and not self.is_ending

    @property
    def waits(self) -> bool:
        return "PENDING" in self.state and not self.is_ending

    @property
    def has_reason(self) -> bool:
        """Whether Slurm has already considered the job, and says why it waits."""
        return self.reason not in ("", "None")


@dataclass(frozen=True)
class Observed:
    pods: tuple[Pod, ...]
    jobs: Mapping[int, Job]
    """All jobs of the bridge that slurmctld knows."""
    machines: Mapping[str, Machine]
    """Machines of the nodes that may run pods, by the node's name in Slurm."""
    homes: Mapping[str, str] = field(default_factory=dict)
    """Name of the machine of each node, also of nodes that run no pods any more."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why nodes are drained; other nodes are missing."""
    lost: frozenset[str] = frozenset()
    """Nodes that are DOWN, so that Slurm has freed their jobs without an epilog."""
    starting: frozenset[str] = frozenset()
    """Machines on which the pod of a node starts. The jobs of its predecessor are dead."""
    restarted: frozenset[str] = frozenset()
    """Machines on which slurmd has just started."""
