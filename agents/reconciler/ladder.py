"""Repair nodes step by step. A *ladder* is the list of repair steps against one cause of problems.

If a step has not helped after some time, the next step follows. Each step gets twice as much time
as the step before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from agents.reconciler.actions import Reboot, Repair, Replace, Restart, Tell
from agents.reconciler.causes import JAIL, NOT_READY, UNSCHEDULED
from agents.reconciler.judge import Finding, Kind, View
from agents.reconciler.memory import Climb, Key, Memory
from agents.reconciler.observed import Pod
from agents.reconciler.wanted import Step, Wanted

IN_VAIN: Mapping[str, frozenset[Step]] = {
    # The machine's kubelet does not respond, so these steps would have no effect.
    NOT_READY: frozenset({"restart", "reboot"}),
    UNSCHEDULED: frozenset({"restart", "reboot", "replace"}),
    # The jail causes the problem, not the node.
    JAIL: frozenset({"restart", "reboot", "replace"}),
}
"""Steps that cannot help, by cause. The reconciler skips these steps."""


@dataclass
class Room:
    """Limit on the nodes that drains and repairs may keep out of service at the same time."""

    most: int
    taken: set[str]

    def take(self, node: str) -> bool:
        """Return whether the limit permits taking the node out of service. If so, add the node."""
        if node not in self.taken and len(self.taken) >= self.most:
            return False
        self.taken.add(node)
        return True


@dataclass(frozen=True)
class Doing:
    """Current action against a cause, or the reason for waiting."""

    text: str
    needs_person: bool = False


@dataclass
class Repairs:
    """Repair steps of all nodes in one pass, and their new progress."""

    memory: dict[Key, Climb] = field(default_factory=dict)
    actions: list[Repair] = field(default_factory=list)
    doing: dict[Key, Doing] = field(default_factory=dict)
    rebooting: set[str] = field(default_factory=set)
    """Machines with a new or still valid request for a reboot."""


def under_way(memory: Memory, wanted: Wanted, now: int) -> set[Key]:
    """Return the started repairs whose last step may still take effect, because its time limit has
    not passed."""
    return {
        key
        for key, climb in memory.items()
        if climb.target and climb.gone is None and now < climb.at + _patience(climb, wanted)
    }


def climb(
    nodes: Mapping[str, View],
    pods: Iterable[Pod],
    wanted: Wanted,
    memory: Memory,
    now: int,
    room: Room,
) -> Repairs:
    """Take the next step for each node that the last step did not repair in time."""
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        on.setdefault(pod.machine, []).append(pod)
    past: dict[str, dict[str, Climb]] = {}
    for (node, cause), one in sorted(memory.items()):
        past.setdefault(node, {})[cause] = one
    begun = under_way(memory, wanted, now)
    ladders = _Ladders(nodes, on, wanted, now, room, dict(begun))
    for view in nodes.values():
        ladders.look_at(view, past.get(view.name, {}))
    return ladders.found


@dataclass
class _Ladders:
    nodes: Mapping[str, View]
    pods_on: Mapping[str, list[Pod]]
    """Pods by machine."""
    wanted: Wanted
    now: int
    room: Room
    begun: dict[str, str]
    """Nodes under repair, with the cause."""
    found: Repairs = field(default_factory=Repairs)

    def look_at(self, view: View, past: Mapping[str, Climb]) -> None:
        if view.is_foreign or view.is_wished_out:
            # A person works on the node. Repair nothing, and keep its memory.
            self.found.memory |= {(view.name, cause): one for cause, one in past.items()}
            return
        live = {f.cause: f for f in view.findings if f.kind in (Kind.FAULT, Kind.ABSENT)}
        for cause, one in past.items():
            gone = self.now if one.gone is None else one.gone
            if cause not in live and self.now < gone + self.wanted.remember:
                self.found.memory[view.name, cause] = replace(one, gone=gone)
        for cause, finding in live.items():
            self.found.memory[view.name, cause] = self._climbed(view, finding, past.get(cause))

    def _climbed(self, view: View, finding: Finding, past: Climb | None) -> Climb:
        steps = steps_of(finding.cause, self.wanted)
        now = self._next(past, finding, len(steps))
        if now.rung >= len(steps):
            return self._needs_person(view, finding, now)
        step = steps[now.rung]
        if step == "recheck" or (now.done and not now.target):
            until = now.at + _patience(now, self.wanted)
            self._say(
                view, finding, f"waits until {_clock(until)}, because the problem may end by itself"
            )
            return replace(now, done=True)
        target = _target(view, step)
        if not target:
            missing = "pod" if step == "restart" else "machine"
            self._say(
                view,
                finding,
                f"the step '{step}' is not possible, because the node has no {missing}",
            )
            return replace(now, done=True)
        if not now.done and (hindrance := self._hindrance(view, finding, step)):
            self._say(view, finding, f"the step '{step}' {hindrance.text}", hindrance.needs_person)
            return now
        if not now.target:
            # The time limit of a step starts when the step becomes possible.
            now = replace(now, at=self.now, target=target)
        return self._taken(view, finding, step, now)

    def _next(self, past: Climb | None, finding: Finding, top: int) -> Climb:
        """Return a node's position on the ladder now. `top` is the position after the last step."""
        if past is None:
            return Climb(0, self.now)
        # An edit of the settings may have removed steps.
        here = replace(past, rung=min(past.rung, top), gone=None)
        if not past.done or here.rung == top:
            return here
        if past.gone is not None:
            if finding.kind is Kind.FAULT:
                return Climb(here.rung + 1, self.now)
            # The node may be absent for another reason. Give it the full time of this step again,
            # but do not repeat the step.
            return replace(here, at=self.now, target="")
        over = self.now >= past.at + _patience(past, self.wanted)
        return Climb(here.rung + 1, self.now) if over else here

    def _needs_person(self, view: View, finding: Finding, now: Climb) -> Climb:
        self._say(
            view,
            finding,
            "a person must repair the node, because no repair step remains",
            needs_person=True,
        )
        if not now.done:
            self.found.actions.append(Tell((view.name, finding.cause), finding.text))
        return now

    def _taken(self, view: View, finding: Finding, step: Step, now: Climb) -> Climb:
        """Add the step's action. If the target has changed, the action was already carried out."""
        key, machine = (view.name, finding.cause), view.machine
        self._say(view, finding, f"the current repair step is '{step}', since {_clock(now.at)}")
        if now.target != _target(view, step):
            return replace(now, done=True)
        self.begun[view.name] = finding.cause
        if machine and step == "reboot" and not self._still_in_use(view, step):
            self.found.rebooting.add(machine.name)
        if now.done:
            return now
        if step == "restart":
            self.found.actions.append(Restart(key, now.target))
        elif machine and step == "reboot":
            self.found.actions.append(Reboot(key, machine.name, machine.boot, now.at))
        elif machine:
            self.found.actions.append(Replace(key, machine.name, machine.uid, machine.provider))
        return now

    def _hindrance(self, view: View, finding: Finding, step: Step) -> Doing | None:
        """Return why a step is not possible yet, or None."""
        if self.begun.get(view.name, finding.cause) != finding.cause:
            return Doing(
                f"waits until the node's repair because of '{self.begun[view.name]}' has ended"
            )
        if step == "restart":
            if not view.is_empty:
                return Doing("waits until the node's jobs end")
        elif found := self._still_in_use(view, step):
            return found
        if not self.room.take(view.name):
            return Doing(
                "waits until other nodes return to service, because 'reconciler.share' limits how "
                "many nodes may be out of service"
            )
        return None

    def _still_in_use(self, view: View, step: Step) -> Doing | None:
        """Return why a machine must not be rebooted or replaced yet, or None.

        All nodes on the machine must be drained and empty. The cluster is responsible for other
        workloads on the machine.
        """
        machine = view.machine
        if machine is None:
            return Doing("is not possible, because the pod has no machine", needs_person=True)
        age = self.now - machine.created
        if step == "replace" and age < self.wanted.replace_age:
            return Doing(
                f"waits until machine {machine.name} is {self.wanted.replace_age} s old "
                f"('reconciler.replace_age'); now, the machine is {age:.0f} s old"
            )
        for pod in self.pods_on.get(machine.name, ()):
            other = self.nodes.get(pod.name)
            if other is None and (pod.is_worker or pod.is_ready):
                return Doing(
                    f"waits for you: pod {pod.name} also runs on machine {machine.name}; move pod "
                    f"{pod.name} to another machine",
                    needs_person=True,
                )
            if other and not other.is_out:
                return Doing(
                    f"waits for you: node {other.name} on machine {machine.name} is not drained; "
                    f"drain node {other.name} with scontrol",
                    needs_person=True,
                )
            if other and not other.is_empty:
                return Doing(
                    f"waits until the jobs of node {other.name} on machine {machine.name} end"
                )
        return None

    def _say(self, view: View, finding: Finding, text: str, needs_person: bool = False) -> None:
        self.found.doing[view.name, finding.cause] = Doing(text, needs_person)


def steps_of(cause: str, wanted: Wanted) -> tuple[Step, ...]:
    in_vain = IN_VAIN.get(cause, frozenset())
    return tuple(step for step in wanted.ladder_of(cause) if step not in in_vain)


def taken(memory: Memory, wanted: Wanted) -> dict[Key, Step]:
    """Return the last step that was tried for each cause, without `recheck`."""
    found: dict[Key, Step] = {}
    for (node, cause), one in memory.items():
        tried = steps_of(cause, wanted)[: one.rung + one.done]
        if steps := [step for step in tried if step != "recheck"]:
            found[node, cause] = steps[-1]
    return found


def _patience(one: Climb, wanted: Wanted) -> int:
    """Return the seconds that a step has to take effect."""
    return int(wanted.back_off * 2**one.rung)


def _target(view: View, step: Step) -> str:
    """Return the ID of the object that a step acts on, or ""."""
    if step == "restart":
        return view.pod.uid if view.pod and view.pod.leaves is None else ""
    if view.machine is None:
        return ""
    return view.machine.boot if step == "reboot" else view.machine.uid


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
