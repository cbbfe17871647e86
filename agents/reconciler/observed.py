"""What there is: Slurm's records of nodes, their pods, and the machines these are on.

A machine is a node of Kubernetes; a node is one of Slurm's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agents.reconciler import objects
from agents.reconciler.kubernetes import Api, KubernetesError
from agents.slurm import Client, Node

DOMAIN = "slurmstack.dev"
COMPONENT = f"{DOMAIN}/component"
OURS = f"app.kubernetes.io/name=slurmstack,{COMPONENT}!=machines,{COMPONENT}!=rebooter"
"""Labels of the pods of the Slurm layer; what is on every machine is its own, and goes with it."""
WORKER = "worker"
"""Value of that label on pods that are nodes."""
CONF = "NODE_CONF"
"""Variable in which slurmd's container has what it says of its node."""
IN_FORCE = "config-in-force"
"""The container that waits until slurmctld runs by a new configuration, and says since when."""
MUNGE = "munge"
"""The container of a pod's munged, where Slurm's users are known by munge."""
REBOOT = f"{DOMAIN}/reboot"
"""Annotation of a machine that asks its rebooter: the boot's id, and Unix time in seconds."""
UNHEALTHY = f"{DOMAIN}/unhealthy"
"""Key of our taint."""
CONDITION = "SlurmNodeUnhealthy"
"""Type of our condition."""


@dataclass(frozen=True)
class Munged:
    """A pod's munged that the kubelet has started again, as it ended or did not answer."""

    is_ready: bool
    ended: float
    """When the one before ended: Unix time."""


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    machine: str
    """"" while it is nowhere."""
    is_worker: bool
    is_ready: bool
    started: float
    """Unix time; 0 before it has."""
    leaves: float | None = None
    """Unix time by which it is to be gone, when it is to go."""
    conf: str = ""
    """What its slurmd says of its node."""
    ready_since: float = 0.0
    """Unix time; 0 where it is not ready, or nobody says since when."""
    why: str = ""
    """Why it is not ready."""
    munged: Munged | None = None
    """None where there is none, or it is the first."""


@dataclass(frozen=True)
class Condition:
    status: str
    """True, False or Unknown."""
    text: str = ""
    since: float = 0.0
    """Unix time."""


@dataclass(frozen=True)
class Machine:
    name: str
    uid: str
    version: str
    """Changes whenever it does."""
    created: float
    """Unix time."""
    boot: str = ""
    """Id of its present boot."""
    provider: str = ""
    """What its cloud calls it."""
    is_cordoned: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def mark(self) -> Condition | None:
        """Our own condition."""
        return self.conditions.get(CONDITION)

    @property
    def is_tainted(self) -> bool:
        return any(taint["key"] == UNHEALTHY for taint in self.taints)


@dataclass(frozen=True)
class Observed:
    records: Mapping[str, Node]
    pods: Mapping[str, Pod]
    machines: Mapping[str, Machine]
    configured: float = 0.0
    """Since when slurmctld runs by the configuration of the last deploy, or a bit later: Unix time.
    0 if it is unknown."""


def observe(slurm: Client, api: Api, namespace: str) -> Observed:
    """All of it, by one request to Slurm and, meanwhile, one to Kubernetes for each 500 objects.

    Raises `SlurmError` and `KubernetesError`, the latter also where only a part came.
    """
    nodes = slurm.begin_nodes()
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods, configured = {}, 0.0
    for item in api.items(path, objects.Pod, labelSelector=OURS):
        one = _pod(item)
        pods[one.name] = one
        configured = max(configured, _configured(item["status"]))
    machines = {one.name: one for one in map(_machine, api.items("/api/v1/nodes", objects.Node))}
    records = {node.name: node for node in nodes()}
    if not machines:
        raise KubernetesError("GET /api/v1/nodes", "not one, although this pod is on one")
    return Observed(records, pods, machines, configured)


def _pod(item: objects.Pod) -> Pod:
    meta, spec, status = item["metadata"], item["spec"], item["status"]
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready = conditions.get("Ready")
    is_ready = ready is not None and ready["status"] == "True"
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        machine=spec.get("nodeName", ""),
        is_worker=meta.get("labels", {}).get(COMPONENT) == WORKER,
        is_ready=is_ready,
        started=_time(status.get("startTime")) or 0.0,
        leaves=_time(meta.get("deletionTimestamp")),
        conf=_conf(spec),
        ready_since=_time(ready.get("lastTransitionTime")) or 0.0 if ready and is_ready else 0.0,
        why="" if is_ready else _why(status, conditions),
        munged=_munged(status),
    )


def _conf(spec: objects.PodSpec) -> str:
    variables = (one for each in spec["containers"] for one in each.get("env", ()))
    return next((one.get("value", "") for one in variables if one["name"] == CONF), "")


def _configured(status: objects.PodStatus) -> float:
    """What images/controller/await-config has left; 0 for any other pod."""
    for container in status.get("containerStatuses", ()):
        said = container.get("state", {}).get("terminated", {}).get("message", "").strip()
        if container["name"] == IN_FORCE and said.isdecimal():
            return float(said)
    return 0.0


def _munged(status: objects.PodStatus) -> Munged | None:
    for container in status.get("initContainerStatuses", ()):
        if container["name"] == MUNGE and container.get("restartCount", 0):
            ended = container.get("lastState", {}).get("terminated", {}).get("finishedAt")
            return Munged(container.get("ready", False), _time(ended) or 0.0)
    return None


def _why(status: objects.PodStatus, conditions: Mapping[str, objects.Condition]) -> str:
    """The first thing that a pod waits for."""
    placed = conditions.get("PodScheduled")
    if placed and placed["status"] == "False":
        return placed.get("message") or placed.get("reason") or "it has no place"
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason")
        if reason not in (None, "PodInitializing", "ContainerCreating"):
            return f"{container['name']}: {reason} {waiting.get('message', '')}".strip()
    phase = status.get("phase", "Pending")
    return f"its phase is {phase}" if phase != "Running" else "slurmd is not ready"


def _machine(item: objects.Node) -> Machine:
    meta, spec, status = item["metadata"], item["spec"], item["status"]
    return Machine(
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        created=meta["creationTimestamp"].timestamp(),
        boot=status.get("nodeInfo", {}).get("bootID", ""),
        provider=spec.get("providerID", ""),
        is_cordoned=bool(spec.get("unschedulable")),
        annotations=meta.get("annotations", {}),
        taints=tuple(spec.get("taints", ())),
        conditions={
            one["type"]: Condition(
                one["status"],
                ": ".join(filter(None, (one.get("reason"), one.get("message")))),
                _time(one.get("lastTransitionTime")) or 0.0,
            )
            for one in status.get("conditions", ())
        },
    )


def _time(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
