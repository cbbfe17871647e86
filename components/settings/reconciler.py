"""Settings of the reconciler: causes that take a node out of service, and repairs."""

from typing import Annotated, Literal

from pydantic import Field

from components.settings.types import LabelKey, Line, Model, Number, Seconds, Word

Step = Literal["recheck", "restart", "reboot", "replace"]
Ladder = Annotated[tuple[Step, ...], Field(max_length=8)]
CONDITIONS = {
    # kubelet's own, except MemoryPressure: jobs that use the memory that they requested cause it.
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
    "node.kubernetes.io/out-of-service",  # set by an administrator
)
HARDWARE = (
    *("gpu-count", "gpu-ecc", "gpu-nvlink", "gpu-power", "gpu-present", "gpu-retired-pages"),
    *("gpu-row-remap", "gpu-temperature", "gpu-throttle", "gpu-xid"),
    *("infiniband-errors", "infiniband-link", "kernel-log"),
)


class Reconciler(Model):
    """The reconciler: drains for faults and maintenance that Kubernetes reports, and repairs."""

    interval: Annotated[int, Field(ge=5, le=3600), Number] = 60
    """Seconds between two passes over all nodes."""
    share: Annotated[float, Field(gt=0, le=1), Number] = 0.1
    """Fraction of the nodes that its own drains and repairs may take out at once, at least one
    node; it reports the excess."""
    maintenance: tuple[LabelKey, ...] = MAINTENANCE
    """Keys of annotations and taints that announce maintenance of a Kubernetes node."""
    conditions: dict[Word, Word] = Field(default_factory=CONDITIONS.copy)
    """Conditions of Kubernetes nodes that are faults when true, each with the name of its cause."""
    hardware: tuple[Word, ...] = HARDWARE
    """Checks of the machine's hardware: if one fails, the Kubernetes node is marked and takes no
    other pods."""
    ladder: Ladder = ("recheck", "restart", "restart")
    """Repairs to try for a node, in order, before an alert calls a person. recheck: check again
    later; restart: its pod; reboot: its machine; replace: its machine."""
    ladders: dict[Word, Ladder] = {}
    """Ladders of single causes instead, by the cause's name, as `gpu-ecc`."""
    back_off: Annotated[int, Field(ge=10, le=86_400), Number] = 300
    """Seconds for the first step; each further step gets twice as many."""
    replace: tuple[Line, ...] = ()
    """Command with arguments that replaces a Kubernetes node. By default the Node is deleted, and
    its creator creates another."""
    replace_age: Seconds = 3600
    """Minimum age of a Kubernetes node for its replacement, in seconds."""
    remember: Seconds = 86_400
    """Seconds after which a resolved cause is forgotten, and starts at the first step again."""
    rollout: Annotated[int, Field(ge=0, le=86_400), Number] = 900
    """Seconds for nodes to come up after a deploy before their state is reported; 0 checks once."""

    def steps(self) -> frozenset[str]:
        """Return all steps of all ladders."""
        return frozenset(self.ladder).union(*self.ladders.values())
