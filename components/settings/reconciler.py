"""Settings of the reconciler: which problems (causes) drain a node, and how it repairs nodes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agents.checks.registry import CHECKS
from agents.reconciler.causes import REPAIRED
from components.settings.types import (
    LabelKey,
    Line,
    Model,
    Number,
    Seconds,
    SecretName,
    Url,
    Word,
    cross_field,
    known_names,
)

Step = Literal["recheck", "restart", "reboot", "replace"]
Ladder = Annotated[tuple[Step, ...], Field(max_length=8)]
CONDITIONS = {
    # From kubelet. MemoryPressure is no fault: jobs cause it when they use their requested memory.
    "DiskPressure": "disk-pressure",
    "PIDPressure": "pid-pressure",
    "NetworkUnavailable": "network",
    # From node-problem-detector.
    "KernelDeadlock": "kernel",
    "ReadonlyFilesystem": "read-only",
}
MAINTENANCE = (
    "ToBeDeletedByClusterAutoscaler",  # cluster-autoscaler
    "cloud.google.com/impending-node-termination",  # GKE
    "karpenter.sh/disrupted",
    "node.kubernetes.io/out-of-service",  # set by an administrator
)
HARDWARE = tuple(sorted(check.name for check in CHECKS.values() if check.hardware))


class Reconciler(Model):
    """The reconciler drains nodes for faults and maintenance that Kubernetes reports. It also
    tries to repair nodes."""

    interval: Annotated[int, Field(ge=5, le=3600), Number] = 60
    """Seconds between two passes over all nodes."""
    share: Annotated[float, Field(gt=0, le=1), Number] = 0.1
    """Maximum fraction of the nodes that the reconciler drains and repairs at a time, at least one
    node. For further nodes, the reconciler only reports the need."""
    maintenance: tuple[LabelKey, ...] = MAINTENANCE
    """Keys of annotations and taints that announce maintenance of a Kubernetes node."""
    conditions: dict[Word, Word] = Field(default_factory=CONDITIONS.copy)
    """Conditions of Kubernetes nodes that mean a fault if their status is true. For each condition:
    the name of the cause, as in drain reasons and in `ladders`."""
    hardware: tuple[Word, ...] = HARDWARE
    """Checks of the machine's hardware. If one fails, the Kubernetes node gets a taint that keeps
    new pods away."""
    ladder: Ladder = ("recheck", "restart", "restart")
    """Repairs to try for a node, in this order, before an alert calls an operator. recheck: check
    again later; restart: restart the pod; reboot: reboot the machine; replace: replace the
    machine."""
    ladders: dict[Word, Ladder] = {}
    """Repairs for a single cause, such as the failed check `gpu-ecc`, instead of the repairs in
    `ladder`."""
    back_off: Annotated[int, Field(ge=10, le=86_400), Number] = 300
    """Seconds that the first repair has to take effect. Each further repair has twice as many
    seconds as the repair before it."""
    replace: tuple[Line, ...] = ()
    """Command with arguments that replaces a Kubernetes node. By default, the reconciler only
    deletes the Node object. The machine itself then stays, unless its cloud reacts to this."""
    replace_secret: SecretName | None = None
    """Secret in the stack's namespace. Its entries are files for the command `replace`, in
    /etc/slurmstack/replace."""
    replace_servers: tuple[Url, ...] = ()
    """URLs of the servers that the command `replace` connects to, such as the cloud's API."""
    replace_age: Seconds = 3600
    """Minimum age, in seconds, at which a Kubernetes node may be replaced."""
    remember: Seconds = 86_400
    """Seconds until the reconciler forgets a resolved cause. If the cause returns later, the
    reconciler starts with the first repair again."""
    rollout: Annotated[int, Field(ge=0, le=86_400), Number] = 900
    """Seconds that a deploy waits for nodes to come up before it reports their state; 0: check
    once, without waiting."""

    @model_validator(mode="after")
    def _causes_exist(self) -> Self:
        for name in self.hardware:
            if name not in CHECKS:
                known = known_names(name, CHECKS)
                raise cross_field("hardware", f"'{name}' is not a check; {known}")
        if "Ready" in self.conditions:
            raise cross_field(
                "conditions.Ready",
                "the condition Ready is true for healthy nodes, so the reconciler would drain all "
                "nodes; remove it: the reconciler always drains nodes that are not ready",
            )
        causes = {*CHECKS, *REPAIRED, *self.conditions.values()}
        for name in self.ladders:
            if name not in causes:
                known = known_names(name, causes)
                raise cross_field(
                    f"ladders.{name}",
                    f"'{name}' is neither a check nor a problem that the reconciler can repair; "
                    f"{known}",
                )
        return self

    @model_validator(mode="after")
    def _secret_and_servers_have_a_command(self) -> Self:
        servers = ", ".join(self.replace_servers)
        for key, value in {
            "replace_secret": self.replace_secret,
            "replace_servers": servers,
        }.items():
            if value and not self.replace:
                raise cross_field(
                    key,
                    f"{value}: has no effect, because reconciler.replace is not set; set "
                    "reconciler.replace to a command, or remove this setting",
                )
        return self

    def steps(self) -> frozenset[str]:
        """Return all repairs in `ladder` and `ladders`."""
        return frozenset(self.ladder).union(*self.ladders.values())
