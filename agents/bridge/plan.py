"""Decide what to do for each gang of pods. The functions have no side effects.

The rules, in the order of a gang's life:

1. A gang whose pods all exist gets a job. The job excludes the nodes whose machines Kubernetes does
   not allow.
2. When the job runs, the gang's pods are bound to the job's machines, all or none. If Kubernetes
   has no room there, the job is cancelled, and the gang gets another job without these nodes.
3. When all pods have stopped, the job is ended.
4. If the job ends earlier, or no longer has the node of a pod, the pod is deleted.
5. If Slurm loses a node, it frees the node's jobs without their epilogs. So a lost node is drained
   until its pods have stopped. A node whose own pod was replaced starts only after its pods have
   stopped.

A pod counts as running until Kubernetes reports that all its containers have stopped, because its
CPUs and memory are in use until then.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agents.bridge.actions import (
    Action,
    Bind,
    Cancel,
    Drain,
    Evict,
    Exclude,
    Finish,
    Link,
    Place,
    Refuse,
    Release,
    Submit,
    Tell,
    Undrain,
    Unlink,
)
from agents.bridge.fit import Machine, demands, why_full, why_never, why_unmounted
from agents.bridge.observed import Job, Observed, Pod, Request
from agents.bridge.shares import places
from agents.bridge.size import Amounts, largest, subtracted
from agents.drains import PODS

MISFIT = 60.0
"""Seconds for which a gang's jobs exclude a node on which Kubernetes had no room for the gang."""
REFUSAL = 30.0
"""Seconds after which a gang asks Slurm again, if Slurm has refused its job, or if the job was too
small for its pods."""
GATHER = 60.0
"""Seconds after the start of a job within which all pods of its gang must exist and be usable."""


@dataclass(frozen=True)
class Memory:
    """What the bridge keeps from one plan to the next. A restarted bridge does without it."""

    misfits: Mapping[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    """Unix time until which a gang's jobs exclude a node, and why, by gang and node."""
    refusals: Mapping[str, float] = field(default_factory=dict)
    """Unix time until which a gang does not ask Slurm for a job, because Slurm has refused it, or
    because the last job was too small."""

    def refused(self, gangs: Iterable[str], now: float) -> "Memory":
        """Return the memory after Slurm has refused the jobs of these gangs."""
        return replace(self, refusals={**self.refusals, **dict.fromkeys(gangs, now + REFUSAL)})


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...]
    memory: Memory


def plan(observed: Observed, now: float, memory: Memory = Memory()) -> Plan:
    """Return all actions for the present state. `now` is the Unix time."""
    planner = _Planner(observed, now, memory)
    actions = tuple(planner.actions())
    return Plan(actions, Memory(planner.misfits, planner.refusals))


class _Planner:
    def __init__(self, observed: Observed, now: float, memory: Memory) -> None:
        self._observed = observed
        self._now = now
        self._free: dict[str, Amounts] = {
            node: machine.free for node, machine in observed.machines.items()
        }
        self.misfits = {key: one for key, one in memory.misfits.items() if one[0] > now}
        self.refusals = {gang: until for gang, until in memory.refusals.items() if until > now}
        self._never: dict[bytes, dict[str, str]] = {}
        """Why pods may not run on machines, by node, for pods that want the same of a machine."""

    def actions(self) -> Iterator[Action]:
        pods: dict[str, list[Pod]] = defaultdict(list)
        jobs: dict[str, list[Job]] = defaultdict(list)
        for pod in sorted(self._observed.pods, key=lambda pod: (pod.created, pod.uid)):
            pods[self._gang(pod)].append(pod)
        for _, job in sorted(self._observed.jobs.items()):
            jobs[job.gang].append(job)
        # The gang with the oldest pod comes first, so that no gang starves.
        for gang in [*pods, *(gang for gang in jobs if gang not in pods)]:
            yield from self._of_gang(gang, pods[gang], jobs[gang])
        yield from self._of_nodes()

    def _gang(self, pod: Pod) -> str:
        """Return the gang of a pod: that of its job, if it has one.

        A pod stays in its job even if it no longer looks like a member of the gang, for example
        because the object that describes the gang was deleted.
        """
        job = self._job(pod)
        return job.gang if job else pod.gang

    def _job(self, pod: Pod) -> Job | None:
        """Return the job of a pod, or None if it has none, or Slurm no longer knows the job."""
        return self._observed.jobs.get(pod.job) if pod.job is not None else None

    def _of_gang(self, gang: str, pods: Sequence[Pod], jobs: Sequence[Job]) -> Iterator[Action]:
        live = [job for job in jobs if job.runs or job.waits]
        waiting = [pod for pod in pods if pod.job is None and _can_start(pod)]
        for pod in pods:
            yield from self._of_pod(pod, {job.id for job in live})
        for job in live:
            linked = [pod for pod in pods if pod.job == job.id]
            joining = waiting[: max(0, job.pods - sum(not pod.has_stopped for pod in linked))]
            waiting = waiting[len(joining) :]
            yield from (Link(pod, job.id) for pod in joining)
            yield from self._of_job(job, linked, joining)
        if waiting:
            yield from self._of_waiting(gang, waiting, is_late=bool(live))

    # --- Nodes ------------------------------------------------------------------------------------

    def _of_nodes(self) -> Iterator[Action]:
        running: dict[str, list[Pod]] = defaultdict(list)
        for pod in self._observed.pods:
            if pod.machine and not pod.has_stopped:
                running[pod.machine].append(pod)
        for machine in sorted(self._observed.starting):
            for pod in running[machine]:
                if not pod.leaves:
                    yield Evict(pod, f"the Slurm node on the machine {machine} starts again")
        for node, own in sorted(self._observed.machines.items()):
            left = [pod for pod in running[own.name] if self._is_left(pod, node)]
            reason = self._observed.reasons.get(node, "")
            if left and not reason:
                first = left[0]
                text = f"{first.namespace}/{first.name} of job {first.job} still runs"
                yield Drain(node, f"{PODS}{text}")
            elif not left and reason.startswith(PODS):
                yield Undrain(node)

    def _is_left(self, pod: Pod, node: str) -> bool:
        """Return whether a pod may still run, although Slurm has freed its resources."""
        job = self._job(pod)
        if job is None or job.has_ended or job.waits:
            return True
        # The other nodes of the job still run its epilog.
        was_lost = self._observed.reasons.get(node, "").startswith(PODS)
        return job.is_over and (was_lost or node in self._observed.lost)

    # --- Pods -------------------------------------------------------------------------------------

    def _of_pod(self, pod: Pod, live: set[int]) -> Iterator[Action]:
        if pod.has_stopped:
            if pod.is_guarded:
                yield Release(pod)
        elif pod.job is not None and pod.job not in live:
            yield from self._without_job(pod, self._job(pod))
        elif pod.job is None and pod.problem:
            yield from self._refuse(pod)

    def _without_job(self, pod: Pod, job: Job | None) -> Iterator[Action]:
        """Yield what to do with a pod whose job ends, or has ended."""
        if pod.leaves:
            return
        if pod.machine or (job and "CANCELLED" in job.state):
            state = "+".join(sorted(job.state)) if job else "unknown to Slurm"
            yield Evict(pod, f"its job {pod.job} is {state}")
        else:
            yield Unlink(pod)

    # --- Jobs -------------------------------------------------------------------------------------

    def _of_job(self, job: Job, linked: Sequence[Pod], joining: Sequence[Pod]) -> Iterator[Action]:
        present = [pod for pod in linked if not pod.has_stopped]
        if joining:
            return  # the next plan continues, when the pods are linked
        if not present:
            # slurmctld would send the end of the job to the former address of slurmd, and repeat it
            # only after minutes.
            if not any(self._restarts(node) for node in job.shares):
                yield self._end(job, linked)
        elif job.waits:
            yield from self._of_waiting_job(job, present)
        else:
            yield from self._of_running_job(job, present)

    def _restarts(self, node: str) -> bool:
        machines = self._observed.starting | self._observed.restarted
        return self._observed.homes.get(node) in machines

    def _end(self, job: Job, stopped: Sequence[Pod]) -> Action:
        if job.waits or not any(pod.machine for pod in stopped):
            return Cancel(job.id, "its pods are gone")
        return Finish(job.id, all(pod.has_succeeded for pod in stopped))

    def _of_waiting_job(self, job: Job, present: Sequence[Pod]) -> Iterator[Action]:
        if any(pod.machine for pod in present):
            # Slurm has requeued the job, because its user allows it.
            yield from self._dissolve(job, present)
            return
        request = present[0].request
        reasons = self._excluded(job.gang, request) if request else {}
        if self._is_everywhere(reasons):
            # Keep the job, because it keeps its place in the queue.
            yield from self._tell(present, _nowhere(reasons))
            return
        if request and reasons.keys() != job.excluded:
            yield Exclude(job.id, frozenset(reasons))
        if job.has_reason:
            yield from self._tell(present, f"job {job.id} waits in Slurm: {job.reason}")

    def _dissolve(self, job: Job, present: Sequence[Pod]) -> Iterator[Action]:
        """Cancel a job that waits again. Slurm would start it on other nodes, without its pods."""
        for pod in present:
            if not pod.machine:
                yield Unlink(pod)
            elif not pod.leaves:
                yield Evict(pod, f"its job {job.id} waits again")
        yield Cancel(job.id, "it waits again, but its pods have already started")

    def _of_running_job(self, job: Job, present: Sequence[Pod]) -> Iterator[Action]:
        homes = self._observed.homes
        nodes = {homes[node]: node for node in job.shares if node in homes}
        bound = [pod for pod in present if pod.machine]
        for pod in bound if len(nodes) == len(job.shares) else ():
            if pod.machine not in nodes and not pod.leaves:
                yield Evict(pod, f"its job {job.id} no longer has the machine {pod.machine}")
        unbound = [pod for pod in present if not pod.machine]
        if not unbound:
            return
        unusable = [pod for pod in unbound if pod.request is None]
        if unusable:
            yield from self._wait(job, unbound, unusable[0].problem)
        elif not bound and len(unbound) < job.pods:
            text = f"{len(unbound)} of {job.pods} pods of its gang exist"
            yield from self._wait(job, unbound, text)
        else:
            yield from self._bind(job, bound, unbound, nodes)

    def _wait(self, job: Job, unbound: Sequence[Pod], why: str) -> Iterator[Action]:
        """Let a running job wait for its pods, at most `GATHER` seconds."""
        if self._now - job.started < GATHER:
            yield from self._tell(unbound, why)
        else:
            yield from self._give_back(job, unbound, why)

    def _bind(
        self,
        job: Job,
        bound: Sequence[Pod],
        unbound: Sequence[Pod],
        nodes: Mapping[str, str],
    ) -> Iterator[Action]:
        taken = [(pod, nodes[pod.machine]) for pod in bound if pod.machine in nodes]
        chosen = places(job, taken, unbound)
        misfits = self._misfits(chosen or ())
        if chosen and not misfits:
            machines = self._observed.machines
            for pod, node in chosen:
                self._free[node] = _less(self._free[node], pod)
            yield from self._start(job, [(pod, machines[node].name) for pod, node in chosen])
            return
        details = "; ".join(f"{node}: {text}" for node, text in sorted(misfits.items()))
        why = details or "its nodes have no room for its pods"
        if bound:
            # Do not cancel the job: the other pods of the gang run.
            yield from self._tell(unbound, f"job {job.id}: {why}")
            return
        for node, text in misfits.items():
            self.misfits[job.gang, node] = (self._now + MISFIT, text)
        if not misfits:
            # The job is too small for its pods. Another job would be too small as well.
            self.refusals[job.gang] = self._now + REFUSAL
        yield from self._give_back(job, unbound, why)

    def _start(self, job: Job, places: Sequence[tuple[Pod, str]]) -> Iterator[Action]:
        """Bind the pods, but first let Kubernetes create the volumes that they wait for."""
        waiting = [pod for pod, _ in places if pod.request and pod.request.volumes.waiting]
        if not waiting:
            yield Bind(job.id, tuple(places))
            return
        for pod, machine in places:
            claims = pod.request.volumes.waiting if pod.request else {}
            for claim, chosen in sorted(claims.items()):
                if chosen != machine:
                    yield Place(pod, claim, machine)
        yield from self._tell(waiting, "the volumes of its gang do not exist yet")

    def _give_back(self, job: Job, unbound: Sequence[Pod], why: str) -> Iterator[Action]:
        """Cancel a job that cannot start its pods. The pods get another job."""
        # Unlink first: the user has not cancelled the job, so its pods must not be deleted with it.
        yield from (Unlink(pod) for pod in unbound)
        yield Cancel(job.id, why)
        yield from self._tell(unbound, f"job {job.id} was cancelled: {why}")

    def _misfits(self, chosen: Sequence[tuple[Pod, str]]) -> dict[str, str]:
        """Return why Kubernetes has no room for the pods, by node."""
        free, misfits = dict(self._free), {}
        for pod, node in chosen:
            if pod.request is None or node not in free:
                misfits[node] = "the node has no machine in Kubernetes"
                continue
            machine = self._observed.machines[node]
            why = _why_never(pod.request, machine) or why_full(pod.request.size, free[node])
            if why:
                misfits[node] = why
            free[node] = _less(free[node], pod)
        return misfits

    # --- Pods without a job -----------------------------------------------------------------------

    def _of_waiting(self, gang: str, waiting: Sequence[Pod], *, is_late: bool) -> Iterator[Action]:
        first = waiting[0]
        if not is_late and len(waiting) < first.gang_size:
            text = f"{len(waiting)} of {first.gang_size} pods of its gang exist"
            yield from self._tell(waiting, text)
        elif first.request and gang not in self.refusals:
            requests = [pod.request for pod in waiting if pod.request]
            request = replace(
                first.request,
                size=largest(one.size for one in requests),
                limits=largest(one.limits for one in requests),
            )
            reasons = self._excluded(gang, request)
            if self._is_everywhere(reasons):
                yield from self._tell(waiting, _nowhere(reasons))
            else:
                yield Submit(gang, request, tuple(waiting), frozenset(reasons))

    def _excluded(self, gang: str, request: Request) -> dict[str, str]:
        """Return why Kubernetes does not allow a pod on a machine, by node."""
        # Thousands of waiting pods may want the same of hundreds of machines.
        key = demands(request.spec, request.size, request.volumes)
        if key not in self._never:
            reasons = {
                node: _why_never(request, machine) or why_full(request.size, machine.room)
                for node, machine in self._observed.machines.items()
            }
            self._never[key] = {node: why for node, why in reasons.items() if why}
        # Slurm accepts only names of its nodes.
        known = self._observed.machines.keys() | self._observed.homes.keys()
        crowded = {
            node: f"a moment ago, {why}"
            for (owner, node), (_, why) in self.misfits.items()
            if owner == gang and node in known
        }
        return {**crowded, **self._never[key]}

    def _is_everywhere(self, reasons: Mapping[str, str]) -> bool:
        """Return whether no machine is allowed."""
        machines = self._observed.machines
        return bool(machines) and reasons.keys() >= machines.keys()

    def _tell(self, pods: Sequence[Pod], text: str) -> Iterator[Action]:
        return (Tell(pod, text) for pod in pods if pod.said != text)

    def _refuse(self, pod: Pod) -> Iterator[Action]:
        if pod.said != pod.problem:
            yield Refuse(pod, pod.problem)


def _can_start(pod: Pod) -> bool:
    gone = pod.machine or pod.leaves or pod.has_stopped
    return not gone and not pod.is_held_back and pod.request is not None


def _nowhere(reasons: Mapping[str, str]) -> str:
    """Return why no machine is allowed, with the number of machines for each reason."""
    counts = Counter(reasons.values())
    texts = (f"{why} ({number} of {len(reasons)})" for why, number in sorted(counts.items()))
    return f"no machine can run the pod: {'; '.join(texts)}"


def _why_never(request: Request, machine: Machine) -> str:
    return why_never(request.spec, machine) or why_unmounted(request.volumes, machine)


def _less(free: Amounts, pod: Pod) -> Amounts:
    """Return what is free beside a pod."""
    return subtracted(free, pod.request.size) if pod.request else free
