"""What is to be done: a function of what there is, what is wanted and what was begun."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from agents.drains import KUBERNETES, is_own
from agents.reconciler.actions import (
    Action,
    Drain,
    Forget,
    Lift,
    Mark,
    Reboot,
    Repair,
    Replace,
    Requeue,
    Restart,
    Tell,
    Unmark,
    Withdraw,
)
from agents.reconciler.ghosts import ghosts
from agents.reconciler.judge import (
    JAIL,
    NOT_READY,
    SILENT,
    UNSCHEDULED,
    Finding,
    Kind,
    View,
    views,
)
from agents.reconciler.memory import Climb, Key, Memory
from agents.reconciler.observed import REBOOT, Machine, Observed
from agents.reconciler.wanted import Step, Wanted

REASON_LENGTH = 200
"""Characters of a reason of ours at most: sinfo shows it, and the database keeps it."""
IN_VAIN: dict[str, frozenset[Step]] = {
    # Nobody is there who would do it.
    NOT_READY: frozenset({"restart", "reboot"}),
    UNSCHEDULED: frozenset({"restart", "reboot", "replace"}),
    # It comes back by itself, and is no fault of the node's.
    JAIL: frozenset({"restart", "reboot", "replace"}),
}
"""Steps that are no remedy for a cause."""


@dataclass(frozen=True)
class Out:
    """A node that is not as it should be, in a report."""

    node: str
    cause: str
    text: str
    doing: str
    """What is done about it, or waited for."""
    needs_person: bool = False

    def __str__(self) -> str:
        return f"{self.node}: {self.cause}: {self.text} ({self.doing})"


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...]
    memory: Memory
    """To be kept before anything is done."""
    out: tuple[Out, ...]
    wanted: int
    """Number of nodes."""
    in_service: int


def plan(observed: Observed, wanted: Wanted, memory: Memory, now: int) -> Plan:
    """`now` is Unix time. Where nothing is wrong and nothing was begun, there are no actions."""
    nodes = views(observed, wanted, now)
    room = _Room(max(1, int(wanted.share * len(nodes))), _taken(nodes, wanted, memory, now))
    drains, refused = _drains(nodes.values(), room)
    ladders = _Ladders(observed, wanted, nodes, now, room)
    remembered = ladders.climb(memory)
    actions = (
        *(Forget(name) for name in ghosts(observed.records.values(), wanted.replicas())),
        *drains,
        *_requeues(nodes.values()),
        *(
            Lift(view.name, view.reason, view.record.reason_time)
            for view in nodes.values()
            if view.may_be_lifted and view.record
        ),
        *_marks(observed, wanted, nodes),
        *_withdrawals(observed, ladders.rebooting),
        *ladders.repairs,
    )
    return Plan(
        actions,
        remembered,
        tuple(_report(nodes.values(), refused, ladders.doing)),
        len(nodes),
        sum(view.is_in_service for view in nodes.values()),
    )


# --- How much may be out -------------------------------------------------------------------------


@dataclass
class _Room:
    """Nodes that may be out at once by drains and repairs of ours."""

    most: int
    taken: set[str]

    def take(self, node: str) -> bool:
        if node not in self.taken and len(self.taken) >= self.most:
            return False
        self.taken.add(node)
        return True


def _taken(nodes: dict[str, View], wanted: Wanted, memory: Memory, now: int) -> set[str]:
    drained = {view.name for view in nodes.values() if view.has_drain_of_kubernetes}
    repaired = {
        node
        for (node, cause), climb in memory.items()
        if node in nodes and _is_under_way(climb, _steps(cause, wanted), wanted, now)
    }
    return drained | repaired


def _is_under_way(climb: Climb, steps: tuple[Step, ...], wanted: Wanted, now: int) -> bool:
    """Whether a repair that takes the node out still has its time."""
    return (
        climb.gone is None
        and climb.rung < len(steps)
        and climb.target != ""
        and now < climb.at + _patience(climb, wanted)
    )


# --- Drains --------------------------------------------------------------------------------------


def _drains(nodes: Iterable[View], room: _Room) -> tuple[list[Drain], set[str]]:
    """Drains for what Kubernetes says, dead machines first, and the nodes that are past room."""
    asked = [
        (finding.cause != NOT_READY, view.name, finding)
        for view in nodes
        if view.record and not view.is_drained and not view.reason and not _is_leaving(view)
        for finding in [next((one for one in view.findings if one.drains), None)]
        if finding
    ]
    drains, refused = [], set()
    for _, name, finding in sorted(asked, key=lambda one: one[:2]):
        if room.take(name):
            reason = f"{KUBERNETES}{finding.cause}: {finding.text}"
            drains.append(Drain(name, reason[:REASON_LENGTH]))
        else:
            refused.add(name)
    return drains, refused


def _is_leaving(view: View) -> bool:
    return view.pod is not None and view.pod.leaves is not None


def _requeues(nodes: Iterable[View]) -> Iterator[Requeue]:
    """Nodes that neither Slurm nor Kubernetes hears of: their jobs are lost."""
    for view in nodes:
        lost = any(finding.cause == NOT_READY for finding in view.findings)
        record = view.record
        if not (lost and record and view.is_drained and is_own(record.reason)):
            continue
        if record.alloc_cpus and "NOT_RESPONDING" in record.state and "DOWN" not in record.state:
            yield Requeue(view.name, record.reason)


# --- Marks on machines ---------------------------------------------------------------------------


def _marks(observed: Observed, wanted: Wanted, nodes: dict[str, View]) -> Iterator[Mark | Unmark]:
    on: dict[str, list[View]] = {}
    for view in nodes.values():
        if view.machine:
            on.setdefault(view.machine.name, []).append(view)
    for machine in sorted(observed.machines.values(), key=lambda one: one.name):
        here = on.get(machine.name, [])
        broken = [view for view in here if _is_hardware(view, wanted)]
        if seen := [view for view in broken if _was_seen_here(view)]:
            if not (machine.is_tainted and machine.mark and machine.mark.status == "True"):
                yield Mark(machine.name, f"{seen[0].name}: {seen[0].reason}")
        elif _is_marked(machine) and not broken and _is_sound(machine, here):
            yield Unmark(machine.name)


def _is_marked(machine: Machine) -> bool:
    return machine.is_tainted or machine.mark is not None


def _is_hardware(view: View, wanted: Wanted) -> bool:
    name = view.failed_check
    return name is not None and any(fnmatchcase(name, pattern) for pattern in wanted.hardware)


def _was_seen_here(view: View) -> bool:
    """Whether the check failed since the pod is on this machine: a drain moves along with it."""
    evidence, pod = view.evidence, view.pod
    return (
        evidence is not None
        and pod is not None
        and view.failed_check in evidence.failed
        and evidence.at > pod.started > 0
    )


def _is_sound(machine: Machine, here: list[View]) -> bool:
    """Whether checks have passed on a machine since it was marked."""
    since = machine.mark.since if machine.mark else 0.0
    return any(
        view.is_in_service and view.evidence is not None and not view.evidence.failed
        and view.evidence.at > since
        for view in here
    )  # fmt: skip


# --- Ladders -------------------------------------------------------------------------------------


def _steps(cause: str, wanted: Wanted) -> tuple[Step, ...]:
    in_vain = IN_VAIN.get(cause, frozenset())
    return tuple(step for step in wanted.ladder_of(cause) if step not in in_vain)


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")


def _patience(climb: Climb, wanted: Wanted) -> int:
    """Seconds that a step is given."""
    return int(wanted.back_off * 2**climb.rung)


@dataclass
class _Ladders:
    """Takes each node one step further where it is time, and says what is being done."""

    observed: Observed
    wanted: Wanted
    nodes: dict[str, View]
    now: int
    room: _Room
    repairs: list[Repair] = field(default_factory=list)
    rebooting: set[str] = field(default_factory=set)
    """Machines whose reboot is asked for."""
    doing: dict[Key, tuple[str, bool]] = field(default_factory=dict)
    """What is done about a cause, and whether a person is needed."""

    def climb(self, memory: Memory) -> Memory:
        """What is to be remembered; also collects the steps that are to be taken now."""
        kept: dict[Key, Climb] = {}
        for view in self.nodes.values():
            past = {key: climb for key, climb in memory.items() if key[0] == view.name}
            if _is_somebodys(view):
                kept |= past
                continue
            live = {f.cause: f for f in view.findings if f.kind in (Kind.FAULT, Kind.ABSENT)}
            for key, climb in past.items():
                if key[1] not in live:
                    gone = self.now if climb.gone is None else climb.gone
                    if self.now < gone + self.wanted.remember:
                        kept[key] = replace(climb, gone=gone)
            for cause, finding in live.items():
                key = (view.name, cause)
                kept[key] = self._climbed(view, finding, past.get(key))
        return dict(sorted(kept.items()))

    def _climbed(self, view: View, finding: Finding, past: Climb | None) -> Climb:
        steps = _steps(finding.cause, self.wanted)
        climb = self._next(past, finding, len(steps))
        if climb.rung >= len(steps):
            return self._told(view, finding, climb)
        step = steps[climb.rung]
        key = (view.name, finding.cause)
        until = climb.at + _patience(climb, self.wanted)
        if step == "recheck":
            self.doing[key] = (f"looked at again until {_clock(until)}", False)
            return replace(climb, done=True)
        if not self._target(view, step):
            self.doing[key] = (f"{step}: there is nothing to do it to", False)
            return replace(climb, done=True)
        if not climb.done and (hindrance := self._hindrance(view, step)):
            text, needs_person = hindrance
            self.doing[key] = (f"{step}: {text}", needs_person)
            return climb
        if not climb.target:
            # It counts from when it can be taken.
            climb = replace(climb, at=self.now)
        self.doing[key] = (f"{step}, since {_clock(climb.at)}", False)
        return self._taken(view, key, step, climb)

    def _next(self, past: Climb | None, finding: Finding, top: int) -> Climb:
        if past is None:
            return Climb(0, self.now)
        # An edit may have taken rungs away.
        rung = min(past.rung, top)
        if past.gone is not None:
            if finding.kind is Kind.FAULT and past.done and rung < top:
                return Climb(rung + 1, self.now)
            return replace(past, rung=rung, at=self.now, gone=None)
        if past.done and rung < top and self.now >= past.at + _patience(past, self.wanted):
            return Climb(rung + 1, self.now)
        return replace(past, rung=rung)

    def _told(self, view: View, finding: Finding, climb: Climb) -> Climb:
        key = (view.name, finding.cause)
        self.doing[key] = ("a person is needed", True)
        if not climb.done:
            self.repairs.append(Tell(key, finding.text))
        return climb

    def _hindrance(self, view: View, step: Step) -> tuple[str, bool] | None:
        """Why a step cannot be taken yet, and whether that takes a person."""
        if step == "restart":
            if not view.is_empty:
                return "waits for its jobs", False
        elif found := self._still_in_use(view, step):
            return found
        if not self.room.take(view.name):
            return "waits for other repairs, by the share that may be out", False
        return None

    def _still_in_use(self, view: View, step: Step) -> tuple[str, bool] | None:
        """Who keeps a machine from being taken away: all nodes on it are to be drained and empty.

        Other workloads are the cluster's matter.
        """
        machine = view.machine
        if machine is None:
            return "it is on no machine", True
        age = self.now - machine.created
        if step == "replace" and age < self.wanted.replace_age:
            return f"machine {machine.name} is only {age:.0f} s old", False
        for pod in self.observed.pods.values():
            if pod.machine != machine.name or not (pod.is_worker or pod.is_ready):
                continue
            other = self.nodes.get(pod.name)
            if other is None:
                return f"{pod.name} is on its machine", True
            if not other.is_out:
                return f"{other.name} is not drained", True
            if not other.is_empty:
                return f"waits for the jobs of {other.name}", False
        return None

    def _taken(self, view: View, key: Key, step: Step, climb: Climb) -> Climb:
        """The step's action, unless it has been carried out, or was and we did not hear of it."""
        target = climb.target or self._target(view, step)
        same = target == self._target(view, step)
        if step == "reboot" and view.machine and same and not self._still_in_use(view, step):
            self.rebooting.add(view.machine.name)
        if climb.done or not same:
            return replace(climb, done=True, target=target)
        machine = view.machine
        if step == "restart":
            self.repairs.append(Restart(key, target))
        elif machine and step == "reboot":
            self.repairs.append(Reboot(key, machine.name, machine.boot, climb.at))
        elif machine:
            self.repairs.append(Replace(key, machine.name, machine.uid, machine.provider))
        return replace(climb, target=target)

    def _target(self, view: View, step: Step) -> str:
        if step == "restart":
            return view.pod.uid if view.pod else ""
        if view.machine is None:
            return ""
        return view.machine.boot if step == "reboot" else view.machine.uid


def _is_somebodys(view: View) -> bool:
    """Whether a person has it in hand: nothing is repaired, nothing forgotten."""
    return view.is_foreign or any(finding.kind is Kind.WISH for finding in view.findings)


def _withdrawals(observed: Observed, rebooting: set[str]) -> Iterator[Withdraw]:
    for machine in sorted(observed.machines.values(), key=lambda one: one.name):
        if REBOOT in machine.annotations and machine.name not in rebooting:
            yield Withdraw(machine.name)


# --- The report ----------------------------------------------------------------------------------


def _report(
    nodes: Iterable[View], refused: set[str], doing: dict[Key, tuple[str, bool]]
) -> Iterator[Out]:
    for view in nodes:
        for finding in view.findings:
            said, needs_person = doing.get((view.name, finding.cause), ("", False))
            if finding.drains and view.name in refused:
                said, needs_person = "not drained: the share that may be out is out", True
            if not said:
                said = _said(view, finding)
            yield Out(view.name, finding.cause, finding.text, said, needs_person)


def _said(view: View, finding: Finding) -> str:
    if view.may_be_lifted:
        return "comes back now"
    if view.is_foreign:
        return "left alone"
    if finding.drains:
        return "drained" if view.is_drained else "being drained"
    if view.record and view.record.state & SILENT:
        return "silent"
    return "waits"
