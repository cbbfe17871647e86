"""Observed state: Slurm's records of nodes, their pods, and the pods' machines.

A machine is a node of Kubernetes. A node is a node of Slurm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from agents import labels, objects
from agents.kubernetes import Api, KubernetesError
from agents.reconciler.wanted import Roll
from agents.slurm import Client, Node

OURS = ",".join(
    (
        labels.STACK,
        f"{labels.COMPONENT}!={labels.NODE_EXPORTER}",
        f"{labels.COMPONENT}!={labels.REBOOTER}",
    )
)
"""Selector of the stack's pods, except the pods of DaemonSets, which run on every machine."""
CONF = "NODE_CONF"
"""Variable in slurmd's container with the node configuration that slurmd registers."""
IN_FORCE = "config-in-force"
"""Container that waits until slurmctld uses a new configuration, and reports the time."""
REVISION = "controller-revision-hash"
"""Label of a StatefulSet's pods with the name of their template's revision."""
MUNGE = "munge"
"""Container of a pod's munged, if Slurm authenticates users by munge."""


@dataclass(frozen=True)
class Munged:
    """State of a pod's munged (the authentication daemon) after the kubelet has restarted it.

    The kubelet restarts a munged that has ended or does not answer.
    """

    is_ready: bool
    ended: float
    """Unix time at which the previous munged ended."""


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    machine: str
    """Empty before the pod is scheduled."""
    is_worker: bool
    is_ready: bool
    started: float
    """Unix time of the start, or 0 before the start."""
    leaves: float | None = None
    """Deletion deadline of a terminating pod (Unix time), or None for other pods."""
    conf: str = ""
    """Node configuration that slurmd registers."""
    ready_since: float = 0.0
    """Unix time, or 0 if the pod is not ready or the time is unknown."""
    why: str = ""
    """Reason why the pod is not ready."""
    munged: Munged | None = None
    """None if the pod has no munged, or its munged was never restarted."""
    created: float = 0.0
    """Unix time."""
    revision: str = ""
    """Revision of the template that the pod was made from."""
    is_gated: bool = False
    """Whether the pod waits until agents/reconciler lets Kubernetes schedule it."""
    hostname: str = ""
    """Value of the label `kubernetes.io/hostname` of the only machine that the pod may run on, or
    "" if it may run on several."""


@dataclass(frozen=True)
class Update:
    """Current template of a nodeset's pods, and the settings of the update to this template."""

    revision: str
    settings: Roll


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
    """`resourceVersion` of the Node."""
    created: float
    """Unix time."""
    boot: str = ""
    """ID of the current boot."""
    provider: str = ""
    """ID of the machine in its cloud."""
    is_cordoned: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Only the labels whose keys are in `label_keys` of `observe`."""
    taints: tuple[Mapping[str, str], ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def mark(self) -> Condition | None:
        """The condition that the reconciler sets on the machine."""
        return self.conditions.get(labels.CONDITION_UNHEALTHY)

    @property
    def is_tainted(self) -> bool:
        return any(taint["key"] == labels.UNHEALTHY for taint in self.taints)


@dataclass(frozen=True)
class Observed:
    records: Mapping[str, Node]
    pods: Mapping[str, Pod]
    machines: Mapping[str, Machine]
    configured: float = 0.0
    """Approximate Unix time at which slurmctld began to use the last deploy's configuration; 0 if
    the time is unknown."""
    updates: Mapping[str, Update] = field(default_factory=dict)
    """Current template of each nodeset. Leaves out a nodeset while Kubernetes has not processed the
    last edit of its StatefulSet."""


def observe(
    slurm: Client, api: Api, namespace: str, label_keys: frozenset[str] = frozenset()
) -> Observed:
    """Read the whole state, from Slurm and Kubernetes in parallel.

    `label_keys` are the keys of the machines' labels that the result contains. All other labels are
    dropped, because a machine has dozens of them.

    Needs one request to Slurm, and one to Kubernetes per 500 objects. Raises `SlurmError` and
    `KubernetesError`.
    """
    nodes = slurm.begin_nodes()
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods, configured = {}, 0.0
    for item in api.items(path, objects.Pod, labelSelector=OURS):
        one = _pod(item)
        pods[one.name] = one
        configured = max(configured, _configured(item["status"]))
    # Read the templates after the pods. Otherwise, a pod of a newer template than the one read
    # would look outdated.
    updates = templates(api, namespace)
    items = api.items("/api/v1/nodes", objects.Node)
    machines = {one.name: one for one in (_machine(item, label_keys) for item in items)}
    records = {node.name: node for node in nodes()}
    if not machines:
        raise KubernetesError(
            "GET /api/v1/nodes",
            "the list of machines is empty, although this pod runs on one; check which "
            "server answers at the API's address",
        )
    return Observed(records, pods, machines, configured, updates)


def templates(api: Api, namespace: str) -> dict[str, Update]:
    """Return the current template of each nodeset. Raises `KubernetesError`."""
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    found = {}
    for item in api.items(path, objects.StatefulSet):
        meta, status = item["metadata"], item["status"]
        is_seen = status.get("observedGeneration", 0) >= meta.get("generation", 0)
        settings = meta.get("annotations", {}).get(labels.ROLL)
        revision = status.get("updateRevision")
        if settings and revision and is_seen:
            found[meta["name"]] = Update(revision, _roll(path, meta["name"], settings))
    return found


def gated(api: Api, namespace: str) -> set[str]:
    """Return the uids of pods that wait for the reconciler. Raises `KubernetesError`."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    workers = f"{labels.COMPONENT}={labels.WORKER}"
    pending = "status.phase=Pending"
    items = api.items(path, objects.Pod, labelSelector=workers, fieldSelector=pending)
    return {item["metadata"]["uid"] for item in items if _is_gated(item)}


def _roll(path: str, name: str, settings: str) -> Roll:
    try:
        return Roll.model_validate_json(settings)
    except ValidationError:
        raise KubernetesError(
            f"GET {path}",
            f"nodeset {name}: annotation {labels.ROLL}: {settings!r}: expected the settings "
            "of rolling updates; deploy again",
        ) from None


def _pod(item: objects.Pod) -> Pod:
    meta, spec, status = item["metadata"], item["spec"], item["status"]
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready = conditions.get("Ready")
    is_ready = ready is not None and ready["status"] == "True"
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        machine=spec.get("nodeName", ""),
        is_worker=meta.get("labels", {}).get(labels.COMPONENT) == labels.WORKER,
        is_ready=is_ready,
        started=_time(status.get("startTime")) or 0.0,
        leaves=_time(meta.get("deletionTimestamp")),
        conf=_conf(spec),
        ready_since=_time(ready.get("lastTransitionTime")) or 0.0 if ready and is_ready else 0.0,
        why="" if is_ready else _why(status, conditions),
        munged=_munged(status),
        created=meta["creationTimestamp"].timestamp(),
        revision=meta.get("labels", {}).get(REVISION, ""),
        is_gated=_is_gated(item),
        hostname=spec.get("nodeSelector", {}).get(labels.HOSTNAME, ""),
    )


def _is_gated(item: objects.Pod) -> bool:
    return any(gate["name"] == labels.MACHINE for gate in item["spec"].get("schedulingGates", ()))


def _conf(spec: objects.PodSpec) -> str:
    variables = (one for each in spec["containers"] for one in each.get("env", ()))
    return next((one.get("value", "") for one in variables if one["name"] == CONF), "")


def _configured(status: objects.PodStatus) -> float:
    """Return the time that images/controller/await-config reported, or 0 for other pods."""
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
    """Return the reason why a pod is not ready."""
    placed = conditions.get("PodScheduled")
    if placed and placed["status"] == "False":
        return (
            placed.get("message")
            or placed.get("reason")
            or "Kubernetes has not scheduled the pod and gives no reason"
        )
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason")
        if reason not in (None, "PodInitializing", "ContainerCreating"):
            return f"{container['name']}: {reason} {waiting.get('message', '')}".strip()
    phase = status.get("phase", "Pending")
    return (
        f"the phase of the node's pod is {phase}"
        if phase != "Running"
        else "the pod's container slurmd is not ready; check its log"
    )


def _machine(item: objects.Node, label_keys: frozenset[str]) -> Machine:
    meta, spec, status = item["metadata"], item["spec"], item["status"]
    given = meta.get("labels", {})
    return Machine(
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        created=meta["creationTimestamp"].timestamp(),
        boot=status.get("nodeInfo", {}).get("bootID", ""),
        provider=spec.get("providerID", ""),
        is_cordoned=bool(spec.get("unschedulable")),
        annotations=meta.get("annotations", {}),
        labels={key: given[key] for key in label_keys & given.keys()},
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
