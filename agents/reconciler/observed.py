"""What there is: Slurm's records of nodes, their pods, and the machines these are on.

A machine is a node of Kubernetes; a node is one of Slurm's.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.reconciler.kubernetes import Api, KubernetesError, Object
from agents.slurm import Client, Node

DOMAIN = "slurmstack.dev"
COMPONENT = f"{DOMAIN}/component"
OURS = f"app.kubernetes.io/name=slurmstack,{COMPONENT}!=rebooter"
"""Labels of the pods of the Slurm layer; a rebooter is its machine's and goes with it."""
WORKER = "worker"
"""Value of that label on pods that are nodes."""
CONF = "NODE_CONF"
"""Variable in which slurmd's container has what it says of its node."""
REBOOT = f"{DOMAIN}/reboot"
"""Annotation of a machine that asks its rebooter: the boot's id, and Unix time in seconds."""
UNHEALTHY = f"{DOMAIN}/unhealthy"
"""Key of our taint."""
CONDITION = "SlurmNodeUnhealthy"
"""Type of our condition."""


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
    why: str = ""
    """Why it is not ready."""


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


def observe(slurm: Client, api: Api, namespace: str) -> Observed:
    """All of it, by one request to Slurm and, meanwhile, one to Kubernetes for each 500 objects.

    Raises `SlurmError` and `KubernetesError`, the latter also where only a part came.
    """
    with _no_collector():
        nodes = slurm.begin_nodes()
        pods = _parsed(
            _pod, api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=OURS), "pods"
        )
        machines = _parsed(_machine, api.items("/api/v1/nodes"), "nodes")
        records = {node.name: node for node in nodes()}
    if not machines:
        raise KubernetesError("GET /api/v1/nodes", "not one, although this pod is on one")
    return Observed(records, pods, machines)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Without Python's search for cycles: answers have none, and it takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _parsed(parse: Any, items: Iterable[Object], what: str) -> dict[str, Any]:
    try:
        return {found.name: found for found in map(parse, items)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise KubernetesError(what, f"not as expected: {error!r}") from error


def _pod(item: Object) -> Pod:
    meta, spec, status = item["metadata"], item["spec"], item.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    is_ready = conditions.get("Ready", {}).get("status") == "True"
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        machine=spec.get("nodeName", ""),
        is_worker=meta["labels"].get(COMPONENT) == WORKER,
        is_ready=is_ready,
        started=_time(status.get("startTime")) or 0.0,
        leaves=_time(meta.get("deletionTimestamp")),
        conf=_conf(spec),
        why="" if is_ready else _why(status, conditions),
    )


def _conf(spec: Object) -> str:
    variables = (one for each in spec["containers"] for one in each.get("env") or ())
    return next((str(one.get("value", "")) for one in variables if one["name"] == CONF), "")


def _why(status: Object, conditions: Mapping[str, Object]) -> str:
    """The first thing that a pod waits for."""
    placed = conditions.get("PodScheduled", {})
    if placed.get("status") == "False":
        return str(placed.get("message") or placed.get("reason") or "it has no place")
    containers = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    for container in containers:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"{container['name']}: {waiting['reason']} {waiting.get('message', '')}".strip()
    phase = status.get("phase", "Pending")
    return f"its phase is {phase}" if phase != "Running" else "slurmd is not ready"


def _machine(item: Object) -> Machine:
    meta, spec, status = item["metadata"], item["spec"], item.get("status", {})
    return Machine(
        name=meta["name"],
        uid=meta["uid"],
        version=meta["resourceVersion"],
        created=_time(meta["creationTimestamp"]) or 0.0,
        boot=status.get("nodeInfo", {}).get("bootID", ""),
        provider=spec.get("providerID", ""),
        is_cordoned=bool(spec.get("unschedulable")),
        annotations=meta.get("annotations") or {},
        taints=tuple(spec.get("taints") or ()),
        conditions={
            one["type"]: Condition(
                one["status"],
                ": ".join(filter(None, (one.get("reason"), one.get("message")))),
                _time(one.get("lastTransitionTime")) or 0.0,
            )
            for one in status.get("conditions") or ()
        },
    )


def _time(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
