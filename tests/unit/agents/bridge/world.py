"""A fake Slurm and a fake Kubernetes that share machines, with a clock.

Both sides keep their own rules: Slurm gives a CPU to one job at a time, and takes it back only when
the epilog has seen that the job's pods have stopped. `check` asserts after each step that jobs and
pods together never use more CPUs than a machine has.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from agents import labels
from agents.bridge import actions
from agents.bridge.actions import Action
from agents.bridge.fit import Machine
from agents.bridge.identity import Identity
from agents.bridge.observed import Job, Observed, Pod, Request, Share
from agents.bridge.plan import Memory, plan
from agents.bridge.podspec import Spec
from agents.bridge.wishes import Wishes

ALICE = Identity("alice", 1001, 1001, None)
_PASSES = 2
"""A lost node needs some time to register again. The bridge makes at least this many passes in
this time."""
ENDS = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"})


class KilledError(BaseException):
    """The bridge's process was killed."""


@dataclass
class FakePod:
    uid: str
    gang: str
    size: int
    """Number of pods in the gang."""
    cpus: int
    seconds: int
    """Time that the pod runs."""
    grace: int
    """Time from the deletion to the end of the containers."""
    created: float
    job: int | None = None
    machine: str = ""
    bound_at: float = 0.0
    deleted_at: float | None = None
    outcome: str = ""
    """`Succeeded` or `Failed` when all containers have stopped."""
    is_guarded: bool = False

    @property
    def uses_cpus(self) -> bool:
        return bool(self.machine) and not self.outcome


@dataclass
class FakeJob:
    id: int
    gang: str
    """Empty for a job that is no pod's."""
    tasks: int
    cpus: int
    """CPUs of each task."""
    state: set[str] = field(default_factory=lambda: {"PENDING"})
    shares: dict[str, int] = field(default_factory=dict)
    """CPUs on each node. They are the job's until it no longer completes."""
    submitted: float = 0.0
    started: float = 0.0
    seconds: int = 0
    excluded: frozenset[str] = frozenset()


class World:
    def __init__(self, nodes: dict[str, int], chance: random.Random) -> None:
        """`nodes` contains the number of CPUs of each node."""
        self.nodes = nodes
        self.chance = chance
        self.now = 1000.0
        self.pods: dict[str, FakePod] = {}
        self.jobs: dict[int, FakeJob] = {}
        self.foreign = dict.fromkeys(nodes, 0)
        """CPUs of each machine that pods outside the bridge have requested. They do not use them:
        a request alone keeps other pods away."""
        self.down: set[str] = set()
        self.starting: set[str] = set()
        """Nodes whose own pod was replaced, and that wait for the end of their pods."""
        self.reasons: dict[str, str] = {}
        """Why nodes are drained."""
        self._passes: dict[str, int] = {}
        """Number of passes of the bridge since a node went down."""
        self.closed: set[tuple[int, str]] = set()
        """Jobs whose epilog on a node has seen no pods. The bridge binds no more pods there."""
        self.memory = Memory()
        self.killed_after: int | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens between a plan and its actions."""
        self._given_back: set[int] = set()
        """Jobs that the bridge itself has cancelled."""
        self._ids = 0

    # --- What users and operators do --------------------------------------------------------------

    def create(self, size: int, cpus: int, seconds: int, grace: int) -> None:
        gang = f"gang-{self._id()}"
        for _ in range(size):
            uid = f"pod-{self._id()}"
            self.pods[uid] = FakePod(uid, gang, size, cpus, seconds, grace, self.now)

    def submit(self, tasks: int, cpus: int, seconds: int) -> None:
        job = FakeJob(self._id(), "", tasks, cpus, seconds=seconds, submitted=self.now)
        self.jobs[job.id] = job

    def delete(self, pod: FakePod) -> None:
        if pod.deleted_at is None:
            pod.deleted_at = self.now
            if not pod.machine and not pod.outcome:
                pod.outcome = "Failed"

    def cancel(self, job: FakeJob, state: str = "CANCELLED") -> None:
        if job.state & ENDS:
            return
        job.state = {state, "COMPLETING"} if job.shares else {state}

    def fail(self, node: str) -> None:
        self.down.add(node)
        self._passes[node] = 0
        for job in self.jobs.values():
            if node in job.shares:
                self.cancel(job, "NODE_FAIL")
                # Slurm does not wait for the epilog of a lost node.
                del job.shares[node]

    def restart(self, node: str) -> None:
        """Replace the pod of a node. Slurm sees the loss of the jobs when the new slurmd starts."""
        if node not in self.down:
            self.starting.add(node)

    def _start(self) -> None:
        for node in list(self.starting):
            if self.running(node) or node in self.down:
                continue
            self.starting.remove(node)
            for job in self.jobs.values():
                if node in job.shares:
                    self.cancel(job, "NODE_FAIL")
                    self.closed.add((job.id, node))
                    del job.shares[node]

    def recover(self) -> None:
        """Nodes register again, after the bridge has had time to see that they were lost."""
        self.down = {node for node in self.down if self._passes[node] < _PASSES}

    def forget_impossible(self) -> None:
        """Delete gangs that can never start, and cancel jobs larger than all nodes together."""
        for pod in list(self.pods.values()):
            gang = [one for one in self.pods.values() if one.gang == pod.gang and not one.outcome]
            is_partial = len(gang) < pod.size and not any(one.machine for one in gang)
            if is_partial or pod.size > sum(cpus // pod.cpus for cpus in self.nodes.values()):
                self.delete(pod)
        for job in self.jobs.values():
            if job.tasks > sum(cpus // job.cpus for cpus in self.nodes.values()):
                self.cancel(job)

    # --- Time -------------------------------------------------------------------------------------

    def step(self) -> None:
        self.now += 1
        self._kubelets()
        self._start()
        self._end_jobs()
        self._schedule()
        self._collect()
        self.check()

    def _kubelets(self) -> None:
        for pod in self.pods.values():
            if not pod.uses_cpus or pod.machine in self.down:
                continue
            if pod.deleted_at is not None and self.now >= pod.deleted_at + pod.grace:
                pod.outcome = "Failed"
            elif self.now >= pod.bound_at + pod.seconds:
                pod.outcome = "Succeeded"

    def _end_jobs(self) -> None:
        for job in self.jobs.values():
            if "RUNNING" in job.state and job.seconds and self.now >= job.started + job.seconds:
                job.state = {"TIMEOUT" if job.gang else "COMPLETED", "COMPLETING"}
            if "COMPLETING" in job.state:
                for node in list(job.shares):
                    self._epilog(job, node)
                if not job.shares:
                    job.state.discard("COMPLETING")

    def _epilog(self, job: FakeJob, node: str) -> None:
        if not any(pod.job == job.id for pod in self.running(node)):
            self.closed.add((job.id, node))
            del job.shares[node]

    def _schedule(self) -> None:
        for job in self.jobs.values():
            shares = self._places(job) if job.state == {"PENDING"} else None
            if shares:
                job.state, job.shares, job.started = {"RUNNING"}, shares, self.now

    def _places(self, job: FakeJob) -> dict[str, int] | None:
        shares: dict[str, int] = {}
        left = job.tasks
        for node in self.nodes:
            if node in self.down | self.starting | job.excluded or node in self.reasons:
                continue
            free = self.nodes[node] - self.allocated(node)
            tasks = min(left, free // job.cpus)
            if tasks:
                shares[node] = tasks * job.cpus
                left -= tasks
        return None if left else shares

    def allocated(self, node: str) -> int:
        return sum(job.shares.get(node, 0) for job in self.jobs.values())

    def running(self, node: str) -> list[FakePod]:
        return [pod for pod in self.pods.values() if pod.uses_cpus and pod.machine == node]

    def _collect(self) -> None:
        """Remove pods that have stopped, and jobs that ended some time ago."""
        for uid, pod in list(self.pods.items()):
            is_kept = pod.is_guarded or (pod.deleted_at is None and self.now < pod.bound_at + 60)
            if pod.outcome and not is_kept:
                del self.pods[uid]
        for number, job in list(self.jobs.items()):
            if job.state & ENDS and not job.shares and self.now >= job.submitted + 120:
                del self.jobs[number]

    def check(self) -> None:
        for node, cpus in self.nodes.items():
            plain = sum(job.shares.get(node, 0) for job in self.jobs.values() if not job.gang)
            pods = sum(
                pod.cpus for pod in self.pods.values() if pod.uses_cpus and pod.machine == node
            )
            assert plain + pods <= cpus, f"{node} uses {plain} + {pods} of {cpus} CPUs"
            requested = self.foreign[node] + pods
            assert requested <= cpus or self.foreign[node] > 0, f"{node} is over-committed"

    # --- The bridge -------------------------------------------------------------------------------

    def observed(self) -> Observed:
        return Observed(
            tuple(self._pod(pod) for pod in self.pods.values()),
            {job.id: self._job(job) for job in self.jobs.values() if job.gang},
            {node: self._machine(node) for node in self.nodes},
            {node: node for node in self.nodes},
            self.reasons,
            frozenset(self.down),
            frozenset(self.starting),
        )

    def _pod(self, pod: FakePod) -> Pod:
        size = {"cpu": Decimal(pod.cpus)}
        return Pod(
            *("lab", pod.uid, pod.uid, "1", pod.created, pod.gang, pod.size),
            Request(pod.gang, ALICE, Wishes(), Spec([]), size),
            job=pod.job,
            machine=pod.machine,
            stops_by=pod.deleted_at,
            has_stopped=bool(pod.outcome),
            has_succeeded=pod.outcome == "Succeeded",
            finalizers=(labels.BRIDGE,) if pod.is_guarded else (),
        )

    def _job(self, job: FakeJob) -> Job:
        shares = {node: Share(cpus, 0) for node, cpus in job.shares.items()}
        return Job(
            *(job.id, job.gang, job.tasks, frozenset(job.state)),
            started=job.started,
            shares=shares,
            excluded=job.excluded,
        )

    def _machine(self, node: str) -> Machine:
        ours = sum(pod.cpus for pod in self.running(node))
        room = self.nodes[node] - self.foreign[node]
        return Machine(
            node, {}, (), node in self.down, {"cpu": Decimal(room - ours)}, {"cpu": Decimal(room)}
        )

    def bridge(self) -> Sequence[Action]:
        """Make one pass of the bridge, which may be killed before any of its requests."""
        made = plan(self.observed(), self.now, self.memory)
        self.memory = made.memory
        self.meanwhile()
        try:
            for action in made.actions:
                self._carry(action)
            self._passes = {node: number + 1 for node, number in self._passes.items()}
        except KilledError:
            self.memory = Memory()
        self.killed_after = None
        return made.actions

    def _request(self) -> None:
        if self.killed_after is not None:
            self.killed_after -= 1
            if self.killed_after < 0:
                raise KilledError

    def _carry(self, action: Action) -> None:
        if isinstance(action, actions.Bind):
            self._bind(action)
        elif not isinstance(action, actions.Tell | actions.Refuse):
            self._request()
            self._on_slurm(action)
            self._on_pod(action)

    def _on_slurm(self, action: Action) -> None:
        match action:
            case actions.Submit(gang, request, members, excluded):
                cpus = int(request.size["cpu"])
                job = FakeJob(self._id(), gang, len(members), cpus, excluded=excluded)
                job.seconds, job.submitted = self.chance.choice([0, 0, 40]), self.now
                self.jobs[job.id] = job
            case actions.Exclude(number, nodes):
                self.jobs[number].excluded = nodes
            case actions.Drain(node, reason):
                self.reasons[node] = reason
            case actions.Undrain(node):
                del self.reasons[node]
            case actions.Finish(number, success):
                self.cancel(self.jobs[number], "COMPLETED" if success else "FAILED")
            case actions.Cancel(number):
                if self.jobs[number].state & {"PENDING", "RUNNING"}:
                    self._given_back.add(number)
                self.cancel(self.jobs[number])

    def _on_pod(self, action: Action) -> None:
        if not isinstance(action, actions.Link | actions.Unlink | actions.Evict | actions.Release):
            return
        pod = self.pods.get(action.pod.uid)
        if pod is None:
            return
        match action:
            case actions.Link(_, number):
                if pod.deleted_at is None:
                    pod.job, pod.is_guarded = number, True
            case actions.Unlink():
                pod.job = None
            case actions.Evict():
                assert pod.job not in self._given_back, "the user did not cancel this job"
                self.delete(pod)
            case actions.Release():
                pod.is_guarded = False

    def _bind(self, action: actions.Bind) -> None:
        for pod, machine in action.places:
            self._request()
            real = self.pods.get(pod.uid)
            if (action.job, machine) in self.closed:
                continue
            if real is not None and real.deleted_at is None:
                assert not real.machine, "a pod is bound once"
                assert real.job == action.job
                assert real.is_guarded
                real.machine, real.bound_at = machine, self.now

    def _id(self) -> int:
        self._ids += 1
        return self._ids
