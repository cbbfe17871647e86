"""Compute which actions on-demand nodes need, from the observed state and the settings. All
functions are pure.

Slurm's record of a node contains all that the agent must remember, so a restarted agent continues
where the last one stopped. `Memory` contains only data that a restarted agent does not need.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agents import objects
from agents.drains import COST, LEAVE, NOT_RESPONDING, OWN, START
from agents.ondemand.actions import (
    Action,
    Asleep,
    Create,
    Delete,
    GiveUp,
    Hold,
    Lose,
    Release,
    Retry,
    Sleep,
    Started,
    Wake,
)
from agents.ondemand.memory import Memory
from agents.ondemand.observed import BROKEN, IMAGE, Observed, Pod, Trouble
from agents.ondemand.wanted import Nodeset, Wanted
from agents.slurm import Node

TIMEOUT = "ResumeTimeout reached"
"""Reason that slurmctld gives a node that did not start in time (source: power_save.c, Slurm
24.11)."""
ABSENT = f"{OWN}absent"
"""Reason of a static node that never registered (images/controller/absent)."""
TRIES = f"{OWN}failed starts: "
"""Prefix of the comment of a node, with the number of its failed starts in a row."""
_DIGITS = 6
"""Maximum number of digits that the agent reads from such a comment. Python raises an error for a
number of more than 4,300 digits."""
REASON_LENGTH = 200
"""Maximum length of a reason in characters: sinfo shows it, and the database stores it."""

PATIENCE = {IMAGE: 60, BROKEN: 120}
"""Seconds that a pod's trouble may last before the agent gives up the start: for example, a
registry may recover. If no machine has room, the limit is the nodeset's `start` instead, because a
new machine may arrive."""
BACK_OFF = 180
"""Seconds from the first failed start to the next attempt. The time doubles with each failure.
Slurm holds a requeued job for two minutes. If the node were available earlier, it would get the
same job again."""
LONGEST_BACK_OFF = 3600
SETTLING = 60
"""Seconds that a ready pod may exist although its node sleeps or starts in Slurm. If slurmctld has
lost its last changes, the node's slurmd registers again within this time."""

_BUSY = frozenset(
    {
        *("COMPLETING", "DRAIN", "FAIL", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "PLANNED"),
        *("POWER_DOWN", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED"),
    }
)
"""Flags of an idle node that must not go to sleep."""
OUT = frozenset({"DOWN", "DRAIN", "FAIL"})


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...]
    changing: tuple[str, ...]
    """Nodes that are starting, and stopping nodes that still have a pod."""
    awake: int
    asleep: int
    memory: Memory
    """Memory for the next plan."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing will change until Slurm changes a state or a time limit ends."""
        return not self.actions and not self.changing


@dataclass(frozen=True)
class _View:
    """Observed state of one node on demand."""

    name: str
    nodeset_name: str
    nodeset: Nodeset
    record: Node
    pod: Pod | None
    is_outdated: bool
    """Whether the pod was made from an older template than the current one."""

    @property
    def state(self) -> frozenset[str]:
        return self.record.state

    @property
    def is_asleep(self) -> bool:
        return "POWERED_DOWN" in self.state

    @property
    def is_leaving(self) -> bool:
        return "POWERING_DOWN" in self.state

    @property
    def is_waking(self) -> bool:
        return "POWERING_UP" in self.state and not (self.is_asleep or self.is_leaving)

    @property
    def is_awake(self) -> bool:
        return not (self.is_asleep or self.is_leaving or self.is_waking)

    @property
    def is_blocked(self) -> bool:
        """Whether the node waits until its last pod has ended."""
        return self.is_waking and self.pod is not None and self.pod.leaves

    @property
    def recovers(self) -> bool:
        """Whether the pod is ready although the node sleeps or starts in Slurm. slurmctld may have
        lost the change that the node has started."""
        starts = (self.is_asleep and not self.is_leaving) or self.is_waking
        return starts and bool(self.pod and self.pod.is_ready)

    @property
    def has_failed(self) -> bool:
        """Whether the agent has given up the node's start."""
        return "DOWN" in self.state and self.record.reason.startswith(START)

    @property
    def serves(self) -> bool:
        """Whether the node can run jobs now, or as soon as it has woken."""
        wakes = bool(self.state & {"POWER_UP", "ALLOCATED", "MIXED"})
        return (self.is_awake or self.is_waking or wakes) and not self.state & OUT

    @property
    def is_held(self) -> bool:
        """Whether the ceiling of costs keeps the node asleep."""
        return "DRAIN" in self.state and self.record.reason.startswith(COST)

    @property
    def is_refused(self) -> bool:
        """Whether the node's last start would have exceeded the ceiling of costs."""
        return "DOWN" in self.state and self.record.reason.startswith(f"{START}cost:")

    @property
    def is_foreign(self) -> bool:
        """Whether a person has taken the node out of service."""
        is_out = bool(self.state & OUT) and not self.record.reason.startswith(OWN)
        return is_out and not is_slurms_own(self.record)

    @property
    def has_tried(self) -> bool:
        """Whether the last start failed, or the agent's drain of a failed start remains."""
        drained = "DRAIN" in self.state and self.record.reason.startswith(START)
        return drained or self.record.comment.startswith(TRIES)

    @property
    def tries(self) -> int:
        """Number of failed starts in a row, or 0 if the comment contains no valid number.

        Root on a node can write any comment.
        """
        said = self.record.comment.removeprefix(TRIES)
        is_number = self.record.comment != said and len(said) <= _DIGITS and said.isdecimal()
        return int(said) if is_number else 0


@dataclass
class _Costs:
    """Sum of the prices of nodes that run, and the ceiling of costs."""

    ceiling: float | None
    spent: float = 0.0
    counted: set[str] = field(default_factory=set)

    def take(self, view: _View) -> bool:
        """Add a node's price to the sum, unless the sum would exceed the ceiling. Return whether
        the sum contains the price."""
        if view.name in self.counted:
            return True
        price = view.nodeset.price
        if self.ceiling is not None and self.spent + price > self.ceiling + 1e-9:
            return False
        self.count(view)
        return True

    def copy(self) -> "_Costs":
        return _Costs(self.ceiling, self.spent, set(self.counted))

    def count(self, view: _View) -> None:
        self.counted.add(view.name)
        self.spent += view.nodeset.price


def plan(observed: Observed, wanted: Wanted, now: int, memory: Memory | None = None) -> Plan:
    """Return the plan. `now` is Unix time, and `memory` comes from the previous plan."""
    views = list(_views(observed, wanted))
    memory = _remembered(views, now, memory or Memory())
    costs = _Costs(wanted.ceiling)
    for view in views:
        if view.pod or (view.is_awake and not view.state & OUT):
            costs.count(view)
    actions: list[Action] = []
    for view in views:
        actions += _of_node(view, costs, now, memory)
    actions += _wake_and_sleep(views, costs, now, {action.node for action in actions})
    actions += _ceiling(views, costs, now)
    actions += _strays(observed, wanted)
    return Plan(
        tuple(actions),
        tuple(view.name for view in views if view.is_waking or (view.is_leaving and view.pod)),
        sum(view.is_awake for view in views),
        sum(view.is_asleep for view in views),
        memory,
    )


def _remembered(views: list[_View], now: int, before: Memory) -> Memory:
    return Memory(
        {view.name: before.recovering.get(view.name, now) for view in views if view.recovers},
        dict(_ended(views, before)),
        dict(_troubles(views, now, before)),
        {view.name: before.blocked.get(view.name, now) for view in views if view.is_blocked},
        frozenset(
            view.name
            for view in views
            if view.is_waking and (not view.is_foreign or view.name in before.starting)
        ),
    )


def _ended(views: list[_View], before: Memory) -> Iterator[tuple[str, str]]:
    for view in views:
        if view.is_waking and view.name in before.ended:
            yield view.name, before.ended[view.name]
        elif view.is_waking and view.pod and view.pod.has_ended:
            yield view.name, view.pod.uid


def _troubles(
    views: list[_View], now: int, before: Memory
) -> Iterator[tuple[str, tuple[str, str, float]]]:
    for view in views:
        if not view.is_waking or view.pod is None:
            continue
        uid, kind, since = before.troubles.get(view.name, ("", "", now))
        trouble, is_same_pod = view.pod.trouble, uid == view.pod.uid
        if trouble is None:
            # A container that crashes again and again runs between its crashes: keep the trouble.
            if is_same_pod and kind == BROKEN:
                yield view.name, (uid, kind, since)
        elif is_same_pod and kind == trouble.kind:
            yield view.name, (uid, kind, since)
        else:
            yield view.name, (view.pod.uid, trouble.kind, now)


def _views(observed: Observed, wanted: Wanted) -> Iterator[_View]:
    """Yield all nodes on demand that slurmctld knows."""
    for name, nodeset in wanted.nodes().items():
        record, pod = observed.records.get(name), observed.pods.get(name)
        kind = name.rpartition("-")[0]
        template = observed.templates.get(kind)
        if record is None or template is None:
            continue  # a deploy is under way
        outdated = pod is not None and pod.template != template.digest
        yield _View(name, kind, nodeset, record, pod, outdated)


# --- One node ------------------------------------------------------------------------------------


def _of_node(view: _View, costs: _Costs, now: int, memory: Memory) -> Iterator[Action]:
    if view.is_asleep or view.is_leaving:
        yield from _of_sleeper(view, now, memory)
    elif view.has_failed:
        if "POWER_DOWN" not in view.state:
            yield Sleep(view.name, view.record.reason)
    elif view.is_waking:
        yield from _of_waker(view, costs, now, memory)
    else:
        yield from _of_awake(view, costs)


def _of_sleeper(view: _View, now: int, memory: Memory) -> Iterator[Action]:
    pod, record = view.pod, view.record
    if pod is not None:
        # slurmctld may have lost its last changes, such as this node's start. If the node has a
        # job, keep its ready pod.
        if pod.is_ready and record.state & {"ALLOCATED", "MIXED"}:
            return
        if not pod.leaves and not _may_settle(view, now, memory):
            yield Delete(view.name, pod.uid, "the node sleeps in Slurm")
        return
    if view.is_leaving:
        if may_rest(record):
            yield Asleep(view.name)
    elif "DOWN" in view.state and _has_timed_out(record):
        yield _give_up(
            view,
            "timeout",
            f"the node did not start within {view.nodeset.start} s, and has no pod; see the "
            f"events of pod {view.name}, and the log of the Deployment 'ondemand'",
        )
    elif view.state & OUT:
        if not view.is_refused and _may_retry(view, now):
            yield Retry(view.name, record.reason)
    elif "NOT_RESPONDING" in view.state and not view.state & {"POWER_DOWN", "POWER_UP"}:
        # The update RESUME has set the flag NOT_RESPONDING. With this flag, slurmctld would give
        # the node no job after the node's next start.
        yield Sleep(
            view.name,
            "the node sleeps already, but Slurm marks it NOT_RESPONDING; this request clears "
            "the mark; no action needed",
        )


def _has_timed_out(record: Node) -> bool:
    """Return whether slurmctld has ended a node's start because the start took too long.

    In this case, slurmctld appends `TIMEOUT` to an older reason.
    """
    is_own = record.reason.startswith((LEAVE, COST)) or is_slurms_own(record)
    return is_own and record.reason.endswith(TIMEOUT)


def _may_settle(view: _View, now: int, memory: Memory) -> bool:
    """Return whether the node's slurmd still has time to register with slurmctld."""
    return now - memory.recovering.get(view.name, now - SETTLING) < SETTLING


def _may_retry(view: _View, now: int) -> bool:
    """Return whether a sleeping node that is out of service may start again."""
    record = view.record
    if record.reason.startswith(START):
        since = record.reason_time
        return since is None or now - since.timestamp() >= back_off(view.tries)
    return record.reason == LEAVE or ("DOWN" in view.state and is_slurms_own(record))


def may_rest(record: Node) -> bool:
    """Return whether the agent may end POWERING_DOWN with the update RESUME. RESUME would also end
    a drain, so the agent must not send RESUME for a node that others drained."""
    is_drained = bool(record.state & {"DRAIN", "FAIL"})
    return "DOWN" not in record.state and (not is_drained or record.reason == LEAVE)


def is_slurms_own(record: Node) -> bool:
    """Return whether neither a person nor a check took the node out of service."""
    return "DRAIN" not in record.state and (
        not record.reason or record.reason.startswith((ABSENT, NOT_RESPONDING, TIMEOUT))
    )


def back_off(tries: int) -> int:
    """Return the seconds between a failed start and the next attempt."""
    return min(BACK_OFF << min(max(tries, 1) - 1, 10), LONGEST_BACK_OFF)


def _of_waker(view: _View, costs: _Costs, now: int, memory: Memory) -> Iterator[Action]:
    pod, record = view.pod, view.record
    if pod is None:
        if view.is_foreign and view.name in memory.starting:
            return  # slurmctld ends the start at its ResumeTimeout, and keeps the reason
        if costs.take(view):
            yield Create(view.name, view.nodeset_name, view.tries)
        else:
            yield _give_up(view, "cost", _over_ceiling(costs))
        return
    if pod.leaves:
        yield from _of_blocked(view, pod, now, memory)
    elif view.is_outdated and not pod.is_ready:
        yield Delete(view.name, pod.uid, "the settings of its nodeset have changed")
    elif pod.has_ended and memory.ended[view.name] == pod.uid:
        # Tolerate one pod that ends: a new machine can reject its first pod while the machine's
        # devices are not ready.
        yield _delete_ended(view, pod)
    elif view.state & OUT and not record.reason.startswith(OWN):
        pass  # a person has taken the node out of service, and the reason must stay
    elif view.recovers and not _may_settle(view, now, memory):
        # slurmctld was killed before it saved that the node has registered. slurmctld does not ping
        # a starting node, and slurmd registers only at its own start. So the node needs a new pod.
        yield Delete(
            view.name,
            pod.uid,
            "slurmctld has lost the registration of the pod's slurmd; a new pod registers again",
        )
    else:
        yield from _failure(view, pod, now, memory)


def _of_blocked(view: _View, pod: Pod, now: int, memory: Memory) -> Iterator[Action]:
    """Yield the action for a starting node whose last pod is terminating.

    A new pod cannot have the name of a pod that still exists.
    """
    is_late = now - memory.blocked[view.name] > view.nodeset.start
    if not view.is_foreign and (now > pod.ends + objects.STUCK or is_late):
        where = (
            f"on machine {pod.machine}; check the kubelet of this machine"
            if pod.machine
            else "without a machine; remove the finalizers of this pod"
        )
        yield _give_up(view, BROKEN, f"pod {view.name} is stuck terminating {where}")


def _failure(view: _View, pod: Pod, now: int, memory: Memory) -> Iterator[GiveUp]:
    trouble, start = pod.trouble, view.nodeset.start
    is_late = now - pod.created > start
    if trouble and (pod.has_ended or is_late or _is_lasting(view, trouble, now, memory)):
        yield _give_up(view, trouble.kind, trouble.text)
    elif is_late:
        yield _give_up(
            view,
            "timeout",
            f"the node did not start within {start} s; see the events and the slurmd log of pod "
            f"{view.name}, and the log of the Deployment 'ondemand'",
        )


def _is_lasting(view: _View, trouble: Trouble, now: int, memory: Memory) -> bool:
    _, _, since = memory.troubles[view.name]
    return now - since > PATIENCE.get(trouble.kind, view.nodeset.start)


def _of_lost(view: _View, costs: _Costs) -> Iterator[Action]:
    """Yield the action for an awake node without a pod."""
    record = view.record
    if not view.state & OUT or is_slurms_own(record) or record.reason == LEAVE or view.is_held:
        yield Lose(view.name)
    elif view.is_foreign and "DRAIN" not in view.state:
        pass  # a person set DOWN; a new slurmd would end this state (ReturnToService=2)
    elif costs.take(view):
        # Checks run only in a pod, and only they can show whether a drained node is healthy again.
        yield Create(view.name, view.nodeset_name, view.tries)


def _of_awake(view: _View, costs: _Costs) -> Iterator[Action]:
    pod, record = view.pod, view.record
    if pod is None:
        yield from _of_lost(view, costs)
    elif pod.has_ended:
        if not pod.leaves:
            yield _delete_ended(view, pod)
    elif view.is_outdated and not pod.is_ready and view.state & OUT and not record.is_allocated:
        if not pod.leaves:
            yield Delete(view.name, pod.uid, "the settings of its nodeset have changed")
    elif view.is_held:
        # The node woke just before the drain.
        yield Release(view.name, record.reason)
    elif view.has_tried and pod.is_ready and "NOT_RESPONDING" not in view.state:
        yield Started(view.name)


def _delete_ended(view: _View, pod: Pod) -> Delete:
    return Delete(
        view.name,
        pod.uid,
        f"the pod has ended: {pod.trouble.text if pod.trouble else 'no reason given'}",
    )


def _give_up(view: _View, kind: str, text: str) -> GiveUp:
    # Do not count a start that the ceiling of costs prevented. The node is not at fault: the nodes
    # of other users' jobs can use up all that the ceiling allows.
    tries = view.tries + (kind != "cost")
    words = " ".join(text.split())
    return GiveUp(view.name, f"{START}{kind}: {words}"[:REASON_LENGTH], tries)


# --- Warm nodes, idle nodes ----------------------------------------------------------------------


def _wake_and_sleep(
    views: list[_View], costs: _Costs, now: int, taken: set[str]
) -> Iterator[Action]:
    """Yield actions that keep enough nodes of each nodeset awake, and put idle nodes to sleep."""
    nodesets: dict[str, list[_View]] = {}
    for view in views:
        nodesets.setdefault(view.nodeset_name, []).append(view)
    for these in nodesets.values():
        warm = these[0].nodeset.warm(now)
        awake = sum(view.serves for view in these)
        for view in these:
            if awake >= warm:
                break
            if view.is_asleep and not view.state & (OUT | {"POWER_UP"}) and costs.take(view):
                awake += 1
                yield Wake(view.name)
        idle = [view for view in these if _is_idle(view) and view.name not in taken]
        for view in sorted(idle, key=_order):
            if awake <= warm and not view.is_outdated:
                break
            why = _why_sleep(view, now)
            if why:
                awake -= 1
                yield Sleep(view.name, why)


def _is_idle(view: _View) -> bool:
    return (
        view.is_awake
        and "IDLE" in view.state
        and not view.state & _BUSY
        and not view.record.is_allocated
        and view.pod is not None
        and not view.pod.leaves
    )


def _order(view: _View) -> tuple[bool, datetime, int]:
    """Sort nodes: outdated nodes first, then the nodes that have been without a job for the longest
    time, then by number."""
    busy = view.record.last_busy or datetime.fromtimestamp(0, UTC)
    return not view.is_outdated, busy, -int(view.name.rpartition("-")[2])


def _why_sleep(view: _View, now: int) -> str:
    if view.is_outdated:
        return "the settings of its nodeset have changed"
    busy = view.record.last_busy
    if view.name in view.nodeset.keep or busy is None:
        return ""
    seconds = now - busy.timestamp()
    return f"the node has had no job for {seconds:.0f} s" if seconds >= view.nodeset.idle else ""


# --- Costs ---------------------------------------------------------------------------------------


def _over_ceiling(costs: _Costs) -> str:
    return (
        f"with this node, on-demand nodes would cost more than 'on_demand.ceiling': "
        f"{costs.ceiling:g} per hour; wait until other on-demand nodes stop, or raise this limit"
    )


def _ceiling(views: list[_View], costs: _Costs, now: int) -> Iterator[Action]:
    """Drain sleeping nodes that would exceed the ceiling if Slurm woke their whole nodeset.

    Each nodeset may use all that remains below the ceiling. If jobs wake several nodesets at the
    same time, the agent gives up the starts that would exceed the ceiling. It lets these nodes
    start again only when their whole nodeset may wake. Otherwise the jobs of two nodesets would
    repeatedly prevent each other's start.
    """
    costs_of: dict[str, _Costs] = {}
    for view in sorted(views, key=lambda view: view.is_refused):
        is_ours = view.is_held or view.is_refused
        if not view.is_asleep or view.is_leaving or (view.state & OUT and not is_ours):
            continue
        affordable = costs_of.setdefault(view.nodeset_name, costs.copy()).take(view)
        if affordable and view.is_refused and view.pod is None and _may_retry(view, now):
            yield Retry(view.name, view.record.reason)
        elif affordable and view.is_held:
            yield Release(view.name, view.record.reason)
        elif not is_ours and not affordable:
            yield Hold(view.name, f"{COST}{_over_ceiling(costs)}")


# --- Pods without a node --------------------------------------------------------------------------


def _strays(observed: Observed, wanted: Wanted) -> Iterator[Action]:
    """Yield deletions of pods whose nodes are in neither the settings nor Slurm."""
    nodes = wanted.nodes()
    for name, pod in sorted(observed.pods.items()):
        if name not in nodes and name not in observed.records and not pod.leaves:
            yield Delete(name, pod.uid, "the settings do not contain the node")
