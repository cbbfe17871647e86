"""A fake slurmctld with power saving, and a fake Kubernetes, with a clock.

The fake slurmctld follows power_save.c and node_mgr.c of Slurm 24.11. The fakes assert the rules
that the agent must keep.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agents import labels
from agents.kubernetes import Api, KubernetesError, Object
from agents.ondemand.__main__ import Agent
from agents.ondemand.wanted import Nodeset, Wanted
from agents.slurm import Client, Fault, Node, SlurmError
from components.slurmconf.ondemand import SUSPEND_TIMEOUT
from tests.support.slurmnodes import NOW, moment, node

NODE = "gpu-0"
PODS = "/api/v1/namespaces/slurm/pods"
TEMPLATES = "/api/v1/namespaces/slurm/podtemplates"
RESUME_TIMEOUT = 900
SILENCE = 300
"""Seconds after which slurmctld sets a silent node to DOWN."""
TICK = 5
"""Step of the fake clock, in seconds."""
BOOT = 20
"""Seconds that a pod needs to start."""
PERSONS = "broken-fan"
"""Reason with which a person takes a node out of service."""
T = TypeVar("T")


class KilledError(BaseException):
    """The agent's process was killed. No `except` of the agent may catch this."""


@dataclass
class Job:
    number: int
    nodeset: str
    size: int
    seconds: int
    nodes: tuple[str, ...] = ()
    ends: float | None = None
    """Unix time at which the running job ends."""
    is_done: bool = False
    requeues: int = 0


@dataclass
class Pod:
    uid: str
    template: Object
    created: float
    places: bool = True
    """Whether a machine has room for the pod."""
    ready_at: float | None = None
    joined: bool = False
    has_ended: bool = False
    """Whether the kubelet has rejected or evicted the pod."""
    gone_at: float | None = None
    """Unix time at which the terminating pod is gone."""
    is_stuck: bool = False
    """Whether the machine's kubelet has died. The pod does not end before the kubelet returns."""


@dataclass
class Box:
    """A node in Slurm."""

    name: str
    flags: set[str] = field(default_factory=lambda: {"POWERED_DOWN"})
    reason: str = ""
    since: float = 0
    comment: str = ""
    job: int | None = None
    busy: float = NOW
    asked: float = 0
    """Unix time of the last request to wake or to sleep."""
    silent_since: float | None = None

    @property
    def is_out(self) -> bool:
        return bool(self.flags & {"DOWN", "DRAIN"})

    @property
    def is_foreign(self) -> bool:
        return self.is_out and self.reason.startswith(PERSONS)

    @property
    def nodeset(self) -> str:
        return self.name.rpartition("-")[0]

    def clear(self) -> None:
        self.reason, self.since = "", 0

    def record(self, now: float) -> Node:
        base = set() if "DOWN" in self.flags else {"IDLE" if self.job is None else "ALLOCATED"}
        return node(
            self.name,
            "CLOUD",
            *base,
            *self.flags,
            reason=self.reason,
            reason_time=moment(self.since) if self.since else None,
            alloc_cpus=0 if self.job is None else 2,
            comment=self.comment,
            last_busy=moment(self.busy if self.job is None else now),
        )


class World:
    def __init__(self, sizes: Mapping[str, int]) -> None:
        """`sizes` contains the number of nodes of each nodeset."""
        self.nodesets = tuple(sizes)
        names = [f"{nodeset}-{i}" for nodeset, size in sizes.items() for i in range(size)]
        self.boxes = {name: Box(name) for name in names}
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[int, Job] = {}
        self.now = float(NOW)
        self.room = 100
        """Number of pods that the machines have room for."""
        self.image = "good"
        self.quota = 100
        self.rejects = False
        """Whether every kubelet rejects each new pod."""
        self.foreign_pods: set[str] = set()
        """Names of pods that do not belong to the stack's nodes."""
        self.refusal = ""
        """Message with which Kubernetes refuses each new pod."""
        self.uids = 0
        self.ceiling = 1e9
        self.calls = 0
        self.killed_at: int | None = None
        self.slurm_silent_at: int | None = None
        self.kubernetes_silent_at: int | None = None
        self.changes_at: int | None = None
        self.change: Callable[[], None] = lambda: None
        """Change of the world just before request number `changes_at`.

        If this request is an update that directly follows a read of the same node, the change
        happens later: Slurm has no conditional update, so the agent could not notice the change.
        """

    def receive(self, service: str, *, follows_read: bool = False) -> None:
        self.calls += 1
        if self.changes_at is not None and self.calls >= self.changes_at and not follows_read:
            self.changes_at = None
            self.change()
        if self.killed_at is not None and self.calls >= self.killed_at:
            raise KilledError
        silent = self.slurm_silent_at if service == "slurm" else self.kubernetes_silent_at
        if silent is not None and self.calls >= silent:
            if service == "slurm":
                raise SlurmError(Fault.UNREACHABLE, "test", "silent")
            raise KubernetesError("test", "silent")

    # --- Time -------------------------------------------------------------------------------------

    def pass_time(self, seconds: int) -> None:
        for _ in range(0, seconds, TICK):
            self.now += TICK
            self._kubelet()
            self._registrations()
            self._jobs()
            self._power()
            self._schedule()

    def _kubelet(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.gone_at is not None:
                if self.now >= pod.gone_at and not pod.is_stuck:
                    del self.pods[name]
                continue
            if pod.has_ended or pod.is_stuck:
                continue
            pod.places = pod.places and self._has_room(name)
            if not pod.places:
                pod.places = self._has_room(name)
            if pod.ready_at is None and pod.places and self.rejects:
                pod.has_ended = True
            elif pod.ready_at is None and pod.places and pod.template["image"] == "good":
                pod.ready_at = self.now + BOOT

    def _has_room(self, name: str) -> bool:
        before = [other for other in self.pods if other != name and not self.pods[other].has_ended]
        placed = [other for other in before if self.pods[other].ready_at is not None]
        return self.pods[name].ready_at is not None or len(placed) < self.room

    def is_ready(self, name: str) -> bool:
        pod = self.pods.get(name)
        return (
            pod is not None
            and pod.gone_at is None
            and not pod.has_ended
            and not pod.is_stuck
            and pod.ready_at is not None
            and pod.ready_at <= self.now
        )

    def _registrations(self) -> None:
        for box in self.boxes.values():
            if self.is_ready(box.name):
                box.silent_since = None
                self._join(box)
                if "POWERING_DOWN" in box.flags:
                    continue  # "Still waiting for node to power off"
                if box.flags & {"POWERING_UP", "POWERED_DOWN"}:
                    box.busy = self.now
                box.flags -= {"POWERING_UP", "POWERED_DOWN", "NOT_RESPONDING"}
                if "DOWN" in box.flags:
                    box.flags.discard("DOWN")  # ReturnToService=2
                    if "DRAIN" not in box.flags:
                        box.clear()
            elif not box.flags & {"POWERING_UP", "POWERED_DOWN", "POWERING_DOWN", "DOWN"}:
                box.silent_since = box.silent_since or self.now
                if self.now - box.silent_since > SILENCE:
                    self._down(box, "Not responding")

    def _join(self, box: Box) -> None:
        """Lift the drain of the last pod, as images/worker/join does."""
        pod = self.pods[box.name]
        if not pod.joined and box.reason == "slurmstack:leave":
            box.flags.discard("DRAIN")
            box.clear()
        pod.joined = True

    def _down(self, box: Box, reason: str) -> None:
        box.flags.add("DOWN")
        if not box.reason or "DRAIN" not in box.flags:
            box.reason, box.since = reason, self.now
        self.requeue(box)

    def requeue(self, box: Box) -> None:
        if box.job is None:
            return
        job = self.jobs[box.job]
        job.requeues += 1
        self._free(job)

    def _free(self, job: Job) -> None:
        for name in job.nodes:
            self.boxes[name].job = None
            self.boxes[name].busy = self.now
        job.nodes, job.ends = (), None

    def _jobs(self) -> None:
        for job in self.jobs.values():
            if job.is_done or not job.nodes:
                continue
            if job.ends is None:
                boxes = [self.boxes[name] for name in job.nodes]
                if all(not one.flags & {"POWERING_UP", "POWERED_DOWN"} for one in boxes):
                    job.ends = self.now + job.seconds
            elif self.now >= job.ends:
                self._free(job)
                job.is_done = True

    def _power(self) -> None:
        for box in self.boxes.values():
            quiet = box.job is None and not box.flags & {"POWERING_UP", "POWERING_DOWN"}
            if "POWER_DOWN" in box.flags and quiet:
                box.flags -= {"POWER_DOWN", "POWERED_DOWN", "NOT_RESPONDING"}
                box.flags.add("POWERING_DOWN")
                box.asked = self.now
            if "POWERING_DOWN" in box.flags and self.now - box.asked > SUSPEND_TIMEOUT:
                box.flags.discard("POWERING_DOWN")
                box.flags.add("POWERED_DOWN")
            if {"POWER_UP", "POWERED_DOWN"} <= box.flags and "POWERING_DOWN" not in box.flags:
                self._wake(box)
            if "POWERING_UP" in box.flags and self.now - box.asked > RESUME_TIMEOUT:
                box.flags -= {"POWERING_UP", "DRAIN", "POWER_DOWN"}
                box.flags |= {"POWERED_DOWN", "DOWN"}
                # set_node_reason in node_mgr.c
                box.reason = " : ".join(filter(None, (box.reason, "ResumeTimeout reached")))
                box.since = self.now
                self.requeue(box)

    def _wake(self, box: Box) -> None:
        box.flags -= {"POWER_UP", "POWERED_DOWN"}
        box.flags |= {"POWERING_UP", "NOT_RESPONDING"}
        box.asked = self.now

    def _schedule(self) -> None:
        for job in self.jobs.values():
            if job.is_done or job.nodes:
                continue
            free = [
                box
                for box in self.boxes.values()
                if box.job is None
                and box.nodeset == job.nodeset
                and not box.is_out
                and not box.flags & {"POWER_DOWN", "POWERING_DOWN"}
                and (self.is_ready(box.name) or box.flags & {"POWERED_DOWN", "POWERING_UP"})
            ]
            free.sort(key=lambda box: "POWERED_DOWN" in box.flags)
            if len(free) >= job.size:
                job.nodes = tuple(box.name for box in free[: job.size])
                for box in free[: job.size]:
                    box.job = job.number
                    if "POWERED_DOWN" in box.flags:
                        self._wake(box)

    # --- Events -----------------------------------------------------------------------------------

    def submit(self, nodeset: str, size: int, seconds: int) -> None:
        number = len(self.jobs) + 1
        self.jobs[number] = Job(number, nodeset, size, seconds)

    def size(self, nodeset: str) -> int:
        return sum(box.nodeset == nodeset for box in self.boxes.values())

    def foreign_drain(self, box: Box) -> None:
        if "DOWN" not in box.flags:
            if box.flags & {"POWERED_DOWN", "POWERING_UP"}:
                self.requeue(box)
            box.flags.add("DRAIN")
            box.reason, box.since = PERSONS, self.now

    def foreign_down(self, box: Box) -> None:
        box.flags.add("DOWN")
        box.reason, box.since = PERSONS, self.now
        self.requeue(box)

    def foreign_resume(self, box: Box) -> None:
        if box.is_foreign:
            box.flags -= {"DRAIN", "DOWN"}
            box.flags.add("NOT_RESPONDING")
            box.clear()

    def evict(self, box: Box) -> None:
        """Kubernetes evicts the pod; images/worker/leave drains the node and requeues its job."""
        pod = self.pods.get(box.name)
        if pod is None or pod.gone_at is not None:
            return
        pod.gone_at = self.now + 10
        if "DRAIN" not in box.flags and not box.flags & {"DOWN", "POWERING_DOWN", "POWERED_DOWN"}:
            box.flags.add("DRAIN")
            box.reason, box.since = "slurmstack:leave", self.now
        self.requeue(box)

    def lose_pod(self, box: Box) -> None:
        """The pod disappears with its machine, so images/worker/leave does not run."""
        self.pods.pop(box.name, None)

    def end_pod(self, box: Box) -> None:
        """The kubelet evicts the pod, for example because the machine's disk is full."""
        pod = self.pods.get(box.name)
        if pod is not None and pod.gone_at is None and not pod.is_stuck:
            pod.has_ended = True

    def lose_kubelet(self, box: Box) -> None:
        """The machine of the pod stops answering, and Kubernetes keeps the pod."""
        pod = self.pods.get(box.name)
        if pod is not None and not pod.has_ended:
            pod.is_stuck = True

    def set_power(self, box: Box, *state: str) -> None:
        """Carry out an update of a node's state (source: update_node in node_mgr.c)."""
        match state:
            case ("POWER_UP",):
                if "POWERED_DOWN" in box.flags:
                    box.flags.add("POWER_UP")
                elif "POWERING_UP" in box.flags:
                    box.flags |= {"POWERED_DOWN", "POWER_UP"}
            case ("POWER_DOWN", *forced):
                if "POWERING_DOWN" in box.flags:
                    return
                if forced:
                    self.requeue(box)
                if forced or "DOWN" in box.flags:
                    box.flags.discard("POWERING_UP")
                box.flags.add("POWER_DOWN")

    def awake(self) -> set[str]:
        asleep = {"POWERED_DOWN", "POWERING_DOWN"}
        return {box.name for box in self.boxes.values() if not box.flags & asleep}


class FakeSlurm(Client):
    def __init__(self, world: World) -> None:
        self.world = world

    def nodes(self) -> tuple[Node, ...]:
        self.world.receive("slurm")
        return tuple(box.record(self.world.now) for box in self.world.boxes.values())

    def node(self, name: str) -> Node:
        self.world.receive("slurm")
        return self.world.boxes[name].record(self.world.now)

    def power(self, node: str, *state: str) -> None:
        self.world.receive("slurm")
        if "POWERED_DOWN" in state:
            assert node not in self.world.pods, (
                "a node must not be powered down while its pod exists"
            )
        self.world.set_power(self.world.boxes[node], *state)

    def resume(self, node: str) -> None:
        self.world.receive("slurm", follows_read=True)
        box = self.world.boxes[node]
        assert not box.is_foreign, "the agent must not lift a drain that a person set"
        if "POWERING_DOWN" in box.flags:
            assert node not in self.world.pods, "a node is asleep only after its pod is gone"
            box.flags.discard("POWERING_DOWN")
            box.flags.add("POWERED_DOWN")
        if box.is_out:
            box.flags -= {"DRAIN", "DOWN"}
            box.flags.add("NOT_RESPONDING")
        box.clear()

    def down(self, node: str, reason: str) -> None:
        self.world.receive("slurm", follows_read=True)
        box = self.world.boxes[node]
        assert not box.is_foreign, "the agent must not overwrite a reason that a person set"
        box.flags.add("DOWN")
        box.reason, box.since = reason, self.world.now
        self.world.requeue(box)

    def drain(self, node: str, reason: str) -> None:
        self.world.receive("slurm", follows_read=True)
        box = self.world.boxes[node]
        assert not box.is_out, "the agent may drain only a node that is in service"
        if box.flags & {"POWERED_DOWN", "POWERING_UP"}:
            self.world.requeue(box)
        box.flags.add("DRAIN")
        box.reason, box.since = reason, self.world.now

    def annotate(self, node: str, *, comment: str | None = None, extra: str | None = None) -> None:
        self.world.receive("slurm", follows_read=True)
        assert comment is not None
        self.world.boxes[node].comment = comment


class FakeApi(Api):
    def __init__(self, world: World) -> None:
        self.world = world

    def items(self, path: str, kind: type[T], **parameters: str) -> Iterator[T]:
        self.world.receive("kubernetes")
        selector = parameters.get("fieldSelector", "")
        if selector:
            name = selector.removeprefix("metadata.name=")
            found = [one for one in self._pods() if one["metadata"]["name"] == name]
            if name in self.world.foreign_pods:
                meta = self._meta(name, "foreign", {})
                found = [{"metadata": meta, "spec": {"containers": []}, "status": {}}]
        else:
            assert parameters == {"labelSelector": labels.ON_DEMAND}
            found = self._templates() if path == TEMPLATES else self._pods()
        return iter([msgspec.convert(one, kind) for one in found])

    def _templates(self) -> list[Object]:
        image = self.world.image
        return [
            {
                "metadata": self._meta(nodeset, f"{nodeset}-uid", {labels.NODESET: nodeset}),
                "template": {"metadata": {}, "spec": {"image": image}},
            }
            for nodeset in self.world.nodesets
        ]

    def _meta(self, name: str, uid: str, given: dict[str, str], **further: Any) -> Object:
        born = datetime.fromtimestamp(further.pop("born", NOW), UTC)
        return {
            "name": name,
            "uid": uid,
            "labels": given,
            "resourceVersion": "1",
            "creationTimestamp": born,
            **further,
        }

    def _pods(self) -> list[Object]:
        found = []
        for name, pod in self.world.pods.items():
            leaves = (
                {"deletionTimestamp": datetime.fromtimestamp(pod.gone_at, UTC)}
                if pod.gone_at is not None
                else {}
            )
            meta = self._meta(
                name,
                pod.uid,
                {labels.ON_DEMAND: "true"},
                born=pod.created,
                annotations=pod.template["annotations"],
                **leaves,
            )
            placed = "True" if pod.places else "False"
            ready = "True" if self.world.is_ready(name) else "False"
            conditions = [
                {"type": "PodScheduled", "status": placed},
                {"type": "Ready", "status": ready},
            ]
            waiting = {"waiting": {"reason": "ImagePullBackOff"}}
            state = {} if pod.template["image"] == "good" else {"state": waiting}
            ended = {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "The node was low on memory",
            }
            found.append(
                {
                    "metadata": meta,
                    "spec": {"containers": [], "nodeName": "metal-7"},
                    "status": {
                        **(ended if pod.has_ended else {}),
                        "conditions": conditions,
                        "containerStatuses": [{"name": "slurmd", **state}],
                    },
                }
            )
        return found

    def ask(
        self, method: str, path: str, body: Object | None = None, *, kind: str = "application/json"
    ) -> Object:
        self.world.receive("kubernetes")
        assert body is not None
        if method == "POST":
            return self._create(body)
        assert method == "DELETE"
        name = path.rpartition("/")[2]
        pod = self.world.pods.get(name)
        if pod is None:
            raise KubernetesError(path, "not found", 404)
        if pod.uid != body["preconditions"]["uid"]:
            raise KubernetesError(path, "the UID differs", 409)
        if pod.has_ended:
            del self.world.pods[name]
        elif pod.gone_at is None:
            box = self.world.boxes[name]
            job = self.world.jobs.get(box.job or 0)
            assert job is None or job.ends is None, "the agent must not delete a pod whose job runs"
            pod.gone_at = self.world.now + 5
        return {}

    def _create(self, body: Object) -> Object:
        name = body["metadata"]["name"]
        if name in self.world.pods or name in self.world.foreign_pods:
            raise KubernetesError(PODS, "already exists", 409)
        if len(self.world.pods) >= self.world.quota:
            raise KubernetesError(PODS, "exceeded quota", 403)
        if self.world.refusal:
            raise KubernetesError(PODS, self.world.refusal, 422)
        self.world.uids += 1
        made = {"image": body["spec"]["image"], "annotations": body["metadata"]["annotations"]}
        self.world.pods[name] = Pod(f"uid-{self.world.uids}", made, self.world.now)
        assert len(self.world.pods) <= self.world.ceiling, "the pods cost more than the ceiling"
        return {}


# --- The agent in this world ----------------------------------------------------------------------


def settings(
    sizes: Mapping[str, int], warm: int = 0, ceiling: float | None = None, idle: int = 600
) -> str:
    """Return the agent's settings. `sizes` contains the number of nodes of each nodeset."""
    nodesets = {
        name: Nodeset(
            max=size, min=warm, idle=idle, start=300, keep=frozenset(), schedule=(), price=1.0
        )
        for name, size in sizes.items()
    }
    return Wanted(nodesets=nodesets, ceiling=ceiling).model_dump_json()


def new_agent(world: World, path: Path) -> Agent:
    """Return a new agent with the settings in this file. It knows only what the world stores."""
    return Agent(FakeSlurm(world), FakeApi(world), "slurm", path)


def agent_of(
    world: World, folder: Path, sizes: Mapping[str, int], ceiling: float | None = None
) -> Agent:
    """Return a new agent, and write its settings to a file in the folder."""
    file = folder / "wanted.json"
    file.write_text(settings(sizes, ceiling=ceiling))
    return new_agent(world, file)
