"""Actions of a plan. The bridge skips an action if the state that requires it has changed."""

from dataclasses import dataclass

from agents.bridge.observed import Pod, Request


@dataclass(frozen=True)
class Submit:
    """Submit the job of a gang whose pods all exist."""

    gang: str
    request: Request
    members: tuple[Pod, ...]
    excluded: frozenset[str]

    @property
    def pods(self) -> int:
        return len(self.members)

    def __str__(self) -> str:
        return f"submit a job for {self.pods} pods of {self.gang} as {self.request.identity.user}"


@dataclass(frozen=True)
class Link:
    """Store a pod's job in the pod, and make Kubernetes keep the pod until it has stopped."""

    pod: Pod
    job: int

    def __str__(self) -> str:
        return f"link {_name(self.pod)} to job {self.job}"


@dataclass(frozen=True)
class Unlink:
    """Forget the job of a pod that is not bound, so that the pod gets another job."""

    pod: Pod

    def __str__(self) -> str:
        return f"unlink {_name(self.pod)} from job {self.pod.job}"


@dataclass(frozen=True)
class Exclude:
    """Change the nodes that a pending job must not use."""

    job: int
    nodes: frozenset[str]

    def __str__(self) -> str:
        return f"exclude {len(self.nodes)} nodes from job {self.job}"


@dataclass(frozen=True)
class Bind:
    """Bind all pods of a gang, or none, to the machines of their job."""

    job: int
    places: tuple[tuple[Pod, str], ...]
    """Pods, each with its machine."""

    def __str__(self) -> str:
        where = ", ".join(f"{_name(pod)} to {machine}" for pod, machine in self.places)
        return f"bind pods of job {self.job}: {where}"


@dataclass(frozen=True)
class Place:
    """Let Kubernetes create the volume of a claim for the machine of the claim's pod."""

    pod: Pod
    claim: str
    machine: str

    def __str__(self) -> str:
        return f"create the volume of claim {self.claim} of {_name(self.pod)} for {self.machine}"


@dataclass(frozen=True)
class Evict:
    """Delete a pod whose job no longer holds the pod's resources."""

    pod: Pod
    why: str

    def __str__(self) -> str:
        return f"delete {_name(self.pod)}: {self.why}"


@dataclass(frozen=True)
class Release:
    """Let Kubernetes delete a pod that has stopped."""

    pod: Pod

    def __str__(self) -> str:
        return f"release {_name(self.pod)}"


@dataclass(frozen=True)
class Finish:
    """End a job whose pods have all stopped."""

    job: int
    success: bool

    def __str__(self) -> str:
        return f"end job {self.job} as {'completed' if self.success else 'failed'}"


@dataclass(frozen=True)
class Cancel:
    """Cancel a job that has no pods, or that Kubernetes cannot run on the job's nodes."""

    job: int
    why: str

    def __str__(self) -> str:
        return f"cancel job {self.job}: {self.why}"


@dataclass(frozen=True)
class Tell:
    """Say in a pod's condition why the pod does not run."""

    pod: Pod
    text: str

    def __str__(self) -> str:
        return f"tell {_name(self.pod)} why it waits: {self.text}"


@dataclass(frozen=True)
class Refuse:
    """Report in a pod's condition, and in an event, why the pod cannot run as it is."""

    pod: Pod
    text: str

    def __str__(self) -> str:
        return f"refuse {_name(self.pod)}: {self.text}"


@dataclass(frozen=True)
class Drain:
    """Let Slurm start no job on a node whose machine runs pods that no job holds resources for."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"drain node {self.node}: {self.reason}"


@dataclass(frozen=True)
class Undrain:
    """Lift the drain of a node that the bridge has drained."""

    node: str

    def __str__(self) -> str:
        return f"undrain node {self.node}"


OfPod = Link | Unlink | Place | Evict | Release | Tell | Refuse
"""Actions that change one pod, or a claim of this pod."""
Action = Submit | Exclude | Bind | Finish | Cancel | Drain | Undrain | OfPod


def _name(pod: Pod) -> str:
    return f"pod {pod.namespace}/{pod.name}"
