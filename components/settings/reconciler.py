"""How nodes are looked after: what takes one out of service, and what is tried to mend it."""

from typing import Annotated, Literal

from pydantic import Field

from components.settings.types import LabelKey, Line, Model, Number, Seconds, Word

Step = Literal["recheck", "restart", "reboot", "replace"]
Ladder = Annotated[tuple[Step, ...], Field(max_length=8)]
CONDITIONS = {
    # kubelet's own. Not MemoryPressure: jobs that use what they asked for cause it.
    "DiskPressure": "disk-pressure",
    "PIDPressure": "pid-pressure",
    "NetworkUnavailable": "network",
    # node-problem-detector's.
    "KernelDeadlock": "kernel",
    "ReadonlyFilesystem": "read-only",
}
MAINTENANCE = (
    "ToBeDeletedByClusterAutoscaler",  # cluster-autoscaler
    "cloud.google.com/impending-node-termination",  # GKE
    "karpenter.sh/disrupted",
    "node.kubernetes.io/out-of-service",  # put there by an operator
)
HARDWARE = (
    *("gpu-count", "gpu-ecc", "gpu-nvlink", "gpu-power", "gpu-present", "gpu-retired-pages"),
    *("gpu-row-remap", "gpu-temperature", "gpu-throttle", "gpu-xid"),
    *("infiniband-errors", "infiniband-link", "kernel-log"),
)


class Reconciler(Model):
    """The reconciler: drains for what Kubernetes says, and repairs."""

    interval: Annotated[int, Field(ge=5, le=3600), Number] = 60
    """Seconds from one look at all nodes to the next."""
    share: Annotated[float, Field(gt=0, le=1), Number] = 0.1
    """Share of the nodes that its own drains and repairs may have out at once, one at least; what
    is past it is reported."""
    maintenance: tuple[LabelKey, ...] = MAINTENANCE
    """Keys of annotations and taints by which maintenance of a Kubernetes node is announced."""
    conditions: dict[Word, Word] = Field(default_factory=CONDITIONS.copy)
    """Conditions of Kubernetes nodes that are faults when true, each with the name of its cause."""
    hardware: tuple[Word, ...] = HARDWARE
    """Checks that speak of the machine: where one fails, the Kubernetes node is marked and takes no
    further pods."""
    ladder: Ladder = ("recheck", "restart", "restart")
    """What is tried for a node, in order, until a person is told. recheck: look again later;
    restart: its pod; reboot: its machine; replace: the machine."""
    ladders: dict[Word, Ladder] = {}
    """Ladders of single causes in place of that one, by the cause's name, as `gpu-ecc`."""
    back_off: Annotated[int, Field(ge=10, le=86_400), Number] = 300
    """Seconds that the first step is given; each further one gets twice as many."""
    replace: tuple[Line, ...] = ()
    """Command, with its arguments, that has a Kubernetes node replaced; by default the Node is
    deleted, and who made it makes another."""
    replace_age: Seconds = 3600
    """Seconds for which a new Kubernetes node is not replaced."""
    remember: Seconds = 86_400
    """Seconds after which a cause that went away is forgotten: it begins at the first step."""
    rollout: Annotated[int, Field(ge=0, le=86_400), Number] = 900
    """Seconds that nodes get to come up after a deploy, before the report is made; 0 looks once."""

    def steps(self) -> frozenset[str]:
        """All that any ladder has."""
        return frozenset(self.ladder).union(*self.ladders.values())
