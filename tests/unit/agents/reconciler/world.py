"""Small fakes of Slurm and Kubernetes that carry out only allowed requests.

The fakes assert all rules for drains when a request arrives.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from agents import labels
from agents.drains import CHECK, KUBERNETES, ROLL, Evidence, is_own
from agents.kubernetes import Api, KubernetesError, Object
from agents.reconciler.judge import DUPLICATE_JOB
from agents.reconciler.wanted import Roll
from agents.slurm import Client, Fault, Node, SlurmError
from tests.support.slurmnodes import NOW, moment, node
from tests.unit.agents.reconciler.things import CONF

CONFIG_MAP = "/api/v1/namespaces/slurm/configmaps/memory"
PODS = "/api/v1/namespaces/slurm/pods"
SETS = "/apis/apps/v1/namespaces/slurm/statefulsets"
BUDGETS = "/apis/policy/v1/namespaces/slurm/poddisruptionbudgets/"
ROLL_SHARE = 0.4
CHECKED = "gpu-xid"
BEGAN = {"resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
"""Metadata that all objects of Kubernetes have."""
T = TypeVar("T")


class KilledError(BaseException):
    """The reconciler's process was killed. No `except` of the reconciler may catch this."""


@dataclass
class Box:
    """A node, its pod and its machine; each machine has one node."""

    name: str
    # Slurm's record.
    is_drained: bool = False
    is_silent: bool = False
    is_down: bool = False
    reason: str = ""
    since: int = 0
    extra: str = ""
    jobs: int = 0
    # Kubernetes.
    pod: int | None = 1
    """Generation of the pod, or None while no pod exists."""
    pod_ready: bool = True
    revision: int = 1
    """Revision of the template that the pod was made from."""
    machine: int = 1
    boot: int = 1
    ready: str = "True"
    is_cordoned: bool = False
    has_pressure: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    taints: list[Object] = field(default_factory=list)
    conditions: dict[str, Object] = field(default_factory=dict)
    # The real fault.
    fault: bool = False
    fault_since: int = 0
    checked: int = 0
    """Unix time of the last run of the node's checks."""

    @property
    def has_trouble(self) -> bool:
        """Whether Kubernetes reports a problem."""
        return self.ready != "True" or self.is_cordoned or self.has_pressure

    @property
    def has_duplicate_job(self) -> bool:
        return self.is_drained and self.reason.startswith(DUPLICATE_JOB)

    @property
    def is_foreign(self) -> bool:
        return self.is_drained and not is_own(self.reason) and not self.has_duplicate_job

    @property
    def in_service(self) -> bool:
        return not (self.is_drained or self.is_silent or self.is_down)

    def record(self) -> Node:
        flags = {
            "DRAIN": self.is_drained,
            "NOT_RESPONDING": self.is_silent or self.is_down,
            "DOWN": self.is_down,
            "IDLE": not self.is_down,
        }
        return node(
            self.name,
            "DYNAMIC_NORM",
            *(flag for flag, holds in flags.items() if holds),
            reason=self.reason,
            reason_time=moment(self.since) if self.since else None,
            alloc_cpus=self.jobs,
            extra=self.extra,
        )


class World:
    """All nodes and the clock. The reconciler may drain at most `budget` nodes."""

    def __init__(self, nodes: int, budget: int) -> None:
        self.boxes = {f"cpu-{i}": Box(f"cpu-{i}") for i in range(nodes)}
        self.now = NOW
        self.budget = budget
        self.memory, self.version = "", 1
        self.revision = 1
        """Revision of the current template."""
        self.calls = 0
        self.killed_at: int | None = None
        """Number of the request before which the reconciler is killed."""
        self.slurm_silent_at: int | None = None
        self.kubernetes_silent_at: int | None = None
        self.messages: list[str] = []
        self.protected: Object = {}
        """Fields of the PodDisruptionBudget for nodes with jobs."""
        self.refuses_budget = False
        self.done: Counter[str] = Counter()
        """Number of requests by kind."""

    def receive(self, service: str) -> None:
        """Receive one request."""
        self.calls += 1
        if self.killed_at is not None and self.calls >= self.killed_at:
            raise KilledError
        silent = self.slurm_silent_at if service == "slurm" else self.kubernetes_silent_at
        if silent is not None and self.calls >= silent:
            if service == "slurm":
                raise SlurmError(Fault.UNREACHABLE, "test", "silent")
            raise KubernetesError("test", "silent")

    # --- Events of nodes ----------------------------------------------------------------------

    def run_checks(self, box: Box) -> None:
        """Act like the checks on a node: drain, write evidence, and never lift a drain."""
        if box.is_silent or box.is_down or box.pod is None:
            return
        failed = (CHECKED,) if box.fault else ()
        box.extra = str(Evidence(self.now, failed))
        box.checked = self.now
        if box.fault and not box.is_drained and not box.reason:
            box.is_drained, box.reason, box.since = True, f"{CHECK}{CHECKED}: 79", self.now

    def foreign_drain(self, box: Box) -> None:
        box.is_drained, box.reason, box.since = True, "broken-fan", self.now

    def foreign_resume(self, box: Box) -> None:
        if box.is_foreign:
            box.is_drained, box.reason, box.since = False, "", 0

    def begin_job_twice(self, box: Box) -> None:
        """Act like slurmctld when it starts a job that already runs on the node."""
        if box.in_service:
            box.is_drained, box.reason, box.since = True, DUPLICATE_JOB, self.now
            box.jobs = 1

    def begin_job(self, box: Box) -> None:
        if box.in_service:
            box.jobs = 1

    def fall_silent(self, box: Box) -> None:
        box.ready, box.is_silent, box.pod_ready = "Unknown", True, False

    def come_back(self, box: Box) -> None:
        """Return to service, as with ReturnToService=2. Drains and their reasons stay."""
        box.ready, box.is_silent, box.is_down, box.pod_ready = "True", False, False, True
        if box.pod is None:
            box.pod, box.revision = self.now, self.revision
        if not box.is_drained:
            box.reason, box.since = "", 0

    def time_out(self, box: Box) -> None:
        """Act like slurmctld after SlurmdTimeout: append its text to an existing reason.

        Source: set_node_reason in node_mgr.c.
        """
        if box.is_silent and not box.is_down:
            box.is_down, box.jobs = True, 0
            box.reason = f"{box.reason} : Not responding" if box.reason else "Not responding"
            box.since = self.now

    def lose_pod(self, box: Box) -> None:
        box.pod, box.pod_ready, box.is_silent = None, False, True
        if box.reason.startswith(ROLL):
            # images/worker/leave takes over this drain.
            box.is_drained, box.reason, box.since = False, "", 0

    def edit(self) -> None:
        """Change the template of the pods. Present pods stay."""
        self.revision += 1

    def kubelet_makes_pods(self) -> None:
        for box in self.boxes.values():
            if box.pod is None and box.ready == "True":
                self.come_back(box)

    def repair_all(self) -> None:
        for box in self.boxes.values():
            box.fault = box.is_cordoned = box.has_pressure = False
            box.jobs = 0
            self.come_back(box)


class FakeSlurm(Client):
    def __init__(self, world: World) -> None:
        self._world = world

    def nodes(self) -> tuple[Node, ...]:
        self._world.receive("slurm")
        return tuple(box.record() for box in self._world.boxes.values())

    def begin_nodes(self) -> Callable[[], tuple[Node, ...]]:
        # Read the nodes now, not when the caller waits for the answer, so that requests always have
        # the same order.
        found = self.nodes()
        return lambda: found

    def node(self, name: str) -> Node:
        self._world.receive("slurm")
        return self._world.boxes[name].record()

    def drain(self, node: str, reason: str) -> None:
        box = self._receive("drain", node)
        assert not box.reason, f"the reason '{box.reason}' is overwritten"
        assert is_own(reason)
        box.is_drained, box.reason, box.since = True, reason, self._world.now
        boxes = self._world.boxes.values()
        ours = [one for one in boxes if one.reason.startswith(KUBERNETES)]
        assert len(ours) <= self._world.budget, "the reconciler's drains exceed the budget"
        rolled = [one for one in boxes if one.reason.startswith(ROLL)]
        # If all nodes of the share wait for jobs, the reconciler also updates one idle node.
        assert len(rolled) <= max(1, int(ROLL_SHARE * len(boxes))) + 1, (
            "too many nodes are updated at once"
        )

    def resume(self, node: str) -> None:
        box = self._receive("lift", node)
        assert box.is_drained
        assert not box.is_foreign, f"the drain '{box.reason}' by others is lifted"
        assert not (box.has_duplicate_job and box.jobs), "the job may still run"
        assert not box.is_silent
        assert not box.is_down
        if not box.reason.startswith(ROLL):
            assert box.checked > box.since or not box.extra, "no checks have run since the drain"
            assert not box.has_trouble, "Kubernetes reports a problem"
            assert not box.fault or box.fault_since >= box.checked, "the checks have found a fault"
        box.is_drained, box.reason, box.since = False, "", 0

    def down(self, node: str, reason: str) -> None:
        box = self._receive("requeue", node)
        assert reason == box.reason
        assert is_own(box.reason)
        assert box.is_silent
        assert box.ready != "True", "the machine is healthy and may still run the jobs"
        box.is_down, box.jobs, box.since = True, 0, self._world.now

    def forget(self, node: str) -> None:
        raise AssertionError(f"{node} is wanted")

    def _receive(self, what: str, name: str) -> Box:
        self._world.receive("slurm")
        self._world.done[what] += 1
        return self._world.boxes[name]


class FakeApi(Api):
    def __init__(self, world: World) -> None:
        self._world = world

    def items(self, path: str, kind: type[T], **parameters: str) -> Iterator[T]:
        if path == SETS:
            self._world.receive("kubernetes")
            yield msgspec.convert(_stateful_set(self._world.revision), kind)
            return
        selector = parameters.get("labelSelector", "")
        for box in list(self._world.boxes.values()):
            # One request per node, so that a list may fail in the middle.
            self._world.receive("kubernetes")
            found = [_machine(box)] if path != PODS else _pods(box)
            for one in found:
                if _selects(selector, one["metadata"]):
                    yield msgspec.convert(one, kind)

    def ask(
        self, method: str, path: str, body: Object | None = None, *, kind: str = "application/json"
    ) -> Object:
        self._world.receive("kubernetes")
        if path == CONFIG_MAP:
            return self._config_map(method, body or {})
        if path.startswith(BUDGETS):
            return self._protect(method, path, body)
        if path.endswith("/events"):
            self._world.messages.append(str((body or {})["message"]))
            return {}
        name = path.removesuffix("/status").rpartition("/")[2]
        box = self._world.boxes[name.replace("machine", "cpu")]
        if path.startswith(PODS):
            return self._delete_pod(box, body or {})
        if method == "DELETE":
            return self._delete_machine(box, body or {})
        return self._patch(box, body or {})

    def _protect(self, method: str, path: str, body: Any) -> Object:
        if body:
            if self._world.refuses_budget:
                raise KubernetesError(f"{method} {path}", "HTTP 403 forbidden", 403)
            self._world.protected |= body["spec"]
        return {"spec": self._world.protected}

    def _config_map(self, method: str, body: Any) -> Object:
        world = self._world
        if method == "PATCH":
            assert body["metadata"]["resourceVersion"] == str(world.version)
            world.memory, world.version = body["data"]["memory"], world.version + 1
        return {
            "metadata": {"resourceVersion": str(world.version)},
            "data": {"memory": world.memory},
        }

    def _delete_pod(self, box: Box, body: Any) -> Object:
        assert body["preconditions"]["uid"] == str(box.pod)
        assert not box.jobs, "jobs run on the node"
        assert not box.is_foreign, "others have drained the node"
        is_outdated = box.revision != self._world.revision
        assert not (is_outdated and box.in_service), "a job may start on the node"
        self._world.done["renew" if is_outdated else "restart"] += 1
        self._world.lose_pod(box)
        return {}

    def _delete_machine(self, box: Box, body: Any) -> Object:
        assert body["preconditions"]["uid"] == str(box.machine)
        assert box.is_drained or box.is_down
        assert not box.jobs
        self._world.done["replace"] += 1
        box.machine, box.boot = box.machine + 1, box.boot + 1
        box.annotations, box.taints, box.conditions = {}, [], {}
        self._world.lose_pod(box)
        return {}

    def _patch(self, box: Box, body: Any) -> Object:
        changed = body.get("metadata", {}).get("annotations", {})
        for key, value in changed.items():
            box.annotations.pop(key, None)
            if value is not None:
                box.annotations[key] = value
        if labels.REBOOT in changed and labels.REBOOT in box.annotations:
            assert box.is_drained or box.is_down
            assert not box.jobs
            self._world.done["reboot"] += 1
        if "taints" in body.get("spec", {}):
            box.taints = body["spec"]["taints"]
        for condition in body.get("status", {}).get("conditions", ()):
            box.conditions.pop(condition["type"], None)
            if "$patch" not in condition:
                self._world.done["mark"] += 1
                box.conditions[condition["type"]] = condition
        return _machine(box)


def is_marked(box: Box) -> bool:
    return any(taint["key"] == labels.UNHEALTHY for taint in box.taints)


def _selects(selector: str, metadata: Object) -> bool:
    """Return whether a label selector matches an object."""
    return _selects_labels(selector, tuple(metadata.get("labels", {}).items()))


@functools.cache
def _selects_labels(selector: str, given: tuple[tuple[str, str], ...]) -> bool:
    labels = dict(given)
    for term in filter(None, selector.split(",")):
        key, _, value = term.partition("=")
        if (labels.get(key.removesuffix("!")) == value) is key.endswith("!"):
            return False
    return True


def _pods(box: Box) -> list[Object]:
    """Return the pods that every machine has, and the pod of the node if it exists."""
    everywhere = [_everywhere(box.name, component) for component in ("machines", "rebooter")]
    return everywhere if box.pod is None else [*everywhere, _worker(box)]


@functools.cache
def _everywhere(node: str, component: str) -> Object:
    return {
        "metadata": {
            "name": f"{component}-{node}",
            "uid": component,
            "labels": _labels(component),
            **BEGAN,
        },
        "spec": {"nodeName": node.replace("cpu", "machine"), "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def _labels(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "slurmstack", "slurmstack.dev/component": component}


def _worker(box: Box) -> Object:
    return {
        "metadata": {
            "name": box.name,
            "uid": str(box.pod),
            "labels": {**_labels("worker"), "controller-revision-hash": str(box.revision)},
            **BEGAN,
            "creationTimestamp": moment(NOW - 1000 if box.pod == 1 else box.pod or 0).isoformat(),
        },
        "spec": {
            "nodeName": box.name.replace("cpu", "machine"),
            "containers": [{"env": [{"name": "NODE_CONF", "value": CONF}]}],
        },
        "status": {
            "phase": "Running",
            "startTime": moment(NOW - 1000 if box.pod == 1 else box.pod or 0).isoformat(),
            "conditions": [{"type": "Ready", "status": str(box.pod_ready)}],
        },
    }


def _stateful_set(revision: int) -> Object:
    return {
        "metadata": {
            "name": "cpu",
            "uid": "cpu",
            "generation": revision,
            "annotations": {
                labels.ROLL: Roll(share=ROLL_SHARE, in_maintenance=False).model_dump_json()
            },
            **BEGAN,
        },
        "status": {"observedGeneration": revision, "updateRevision": str(revision)},
    }


def _machine(box: Box) -> Object:
    return {
        "metadata": {
            "name": box.name.replace("cpu", "machine"),
            "uid": str(box.machine),
            **BEGAN,
            "annotations": dict(box.annotations),
        },
        "spec": {"unschedulable": box.is_cordoned, "taints": list(box.taints)},
        "status": {
            "nodeInfo": {"bootID": str(box.boot)},
            "conditions": [
                {"type": "Ready", "status": box.ready},
                {"type": "DiskPressure", "status": str(box.has_pressure)},
                *box.conditions.values(),
            ],
        },
    }
