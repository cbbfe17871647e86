"""Compute the reconciler's actions from the observed state, the settings and the memory. All
functions are pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agents import labels
from agents.drains import KUBERNETES, is_own
from agents.reconciler.actions import (
    Action,
    Drain,
    Forget,
    Lift,
    Mark,
    Renew,
    Repair,
    Requeue,
    Restart,
    Unmark,
    Withdraw,
)
from agents.reconciler.causes import NOT_READY, ROLL
from agents.reconciler.ghosts import ghosts
from agents.reconciler.judge import SILENT, Finding, View, views
from agents.reconciler.ladder import Doing, Room, climb, under_way
from agents.reconciler.machines import places
from agents.reconciler.memory import Key, Memory
from agents.reconciler.observed import Machine, Observed
from agents.reconciler.roll import Rolls, roll
from agents.reconciler.wanted import Wanted

REASON_LENGTH = 200
"""Maximum length of a drain reason in characters: sinfo shows it, and the database stores it."""


@dataclass(frozen=True)
class Out:
    """Problem of a node, for a report."""

    node: str
    cause: str
    text: str
    doing: str
    """Current action against the problem, or the reason for waiting."""
    needs_person: bool = False

    def __str__(self) -> str:
        return f"{self.node}: {self.cause}: {self.text} ({self.doing})"


@dataclass(frozen=True)
class Plan:
    actions: tuple[Action, ...]
    memory: Memory
    """Memory to write before the first action."""
    out: tuple[Out, ...]
    wanted: int
    """Number of wanted nodes."""
    in_service: int
    without_munged: int = 0
    """Number of nodes whose munged does not run, or was just restarted."""
    away: frozenset[str] = frozenset()
    """Names of nodes that do not respond to slurmctld."""
    unchecked: int | None = None
    """Number of nodes in service without recent evidence (check results), or None if the settings
    require no evidence."""
    refused: frozenset[str] = frozenset()
    """Names of nodes that must be drained because of a state in Kubernetes, but that the drain
    limit keeps in service."""
    outdated: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes with old settings, for each nodeset that has any."""
    goes_on: bool = False
    """Whether an update, or a node's return to its machine, continues although no job ends and no
    person acts."""


def plan(observed: Observed, wanted: Wanted, memory: Memory, now: int) -> Plan:
    """Return the plan. `now` is Unix time.

    If nothing is wrong and no repair has started, the plan has no actions.
    """
    nodes = views(observed, wanted, now)
    taken = {view.name for view in nodes.values() if view.has_drain_of_kubernetes}
    taken |= {node for node, _ in under_way(memory, wanted, now)} & nodes.keys()
    room = Room(max(1, int(wanted.share * len(nodes))), taken)
    drains, refused = _drains(nodes.values(), room)
    repairs = climb(nodes, observed.pods.values(), wanted, memory, now, room)
    rolls = roll(nodes, observed, wanted, memory, now)
    placed = tuple(places(observed, wanted, now))
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
        *_withdrawals(observed, repairs.rebooting),
        *rolls.actions,
        *_apart(repairs.actions, rolls),
        *placed,
    )
    return Plan(
        actions,
        dict(sorted(repairs.memory.items())),
        (*_report(nodes.values(), refused, {**repairs.doing, **rolls.doing}), *_stopped(rolls)),
        len(nodes),
        sum(view.takes_jobs for view in nodes.values()),
        sum(view.is_without_munged(now) for view in nodes.values()),
        frozenset(view.name for view in nodes.values() if view.is_away),
        _unchecked(nodes.values(), wanted.evidence, now),
        frozenset(refused),
        rolls.outdated,
        rolls.goes_on or bool(placed),
    )


def _unchecked(nodes: Iterable[View], age: int | None, now: int) -> int | None:
    return None if age is None else sum(view.is_unchecked(now, age) for view in nodes)


def _apart(repairs: list[Repair], rolls: Rolls) -> Iterator[Repair]:
    """Yield the repairs, except restarts of pods that an update deletes in this pass."""
    renewed = {action.node for action in rolls.actions if isinstance(action, Renew)}
    for repair in repairs:
        if not (isinstance(repair, Restart) and repair.key[0] in renewed):
            yield repair


# --- Drains --------------------------------------------------------------------------------------


def _drains(nodes: Iterable[View], room: Room) -> tuple[list[Drain], set[str]]:
    """Return drains because of a state in Kubernetes, and the nodes that the drain limit keeps in
    service.

    Nodes on dead machines are drained first.
    """
    asked = [
        (finding.cause != NOT_READY, view.name, finding)
        for view in nodes
        if view.record and not view.is_drained and not view.reason
        for finding in [next((one for one in view.findings if one.drains), None)]
        # A terminating pod needs no drain, except on a dead machine, where it cannot terminate.
        if finding and (finding.cause == NOT_READY or not _is_leaving(view))
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
    """Yield nodes that respond to neither Slurm nor Kubernetes. Their jobs are lost."""
    for view in nodes:
        lost = any(finding.drains and finding.cause == NOT_READY for finding in view.findings)
        record = view.record
        if not (lost and record and view.is_drained and is_own(record.reason)):
            continue
        if record.is_allocated and "NOT_RESPONDING" in record.state and "DOWN" not in record.state:
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
    return view.failed_check in wanted.hardware


def _was_seen_here(view: View) -> bool:
    """Return whether the check failed on this machine, not on an earlier machine of the node.

    A node keeps its drain when it moves to a new machine.
    """
    evidence, pod = view.evidence, view.pod
    return (
        evidence is not None
        and pod is not None
        and view.failed_check in evidence.failed
        and evidence.at > pod.started > 0
    )


def _is_sound(machine: Machine, here: list[View]) -> bool:
    """Return whether checks on a machine have passed since the machine was marked."""
    since = machine.mark.since if machine.mark else 0.0
    return any(
        view.is_in_service and view.evidence is not None and not view.evidence.failed
        and view.evidence.at > since
        for view in here
    )  # fmt: skip


def _withdrawals(observed: Observed, rebooting: set[str]) -> Iterator[Withdraw]:
    for machine in sorted(observed.machines.values(), key=lambda one: one.name):
        if labels.REBOOT in machine.annotations and machine.name not in rebooting:
            yield Withdraw(machine.name)


# --- The report ----------------------------------------------------------------------------------


def _report(nodes: Iterable[View], refused: set[str], doing: Mapping[Key, Doing]) -> Iterator[Out]:
    for view in nodes:
        for finding in view.findings:
            done = doing.get((view.name, finding.cause)) or Doing(_status(view, finding))
            if finding.drains and view.name in refused:
                done = Doing(
                    "not drained, because 'reconciler.share' limits how many nodes may be out "
                    "of service; drain the node with scontrol, or raise this limit",
                    needs_person=True,
                )
            yield Out(view.name, finding.cause, finding.text, done.text, done.needs_person)


def _stopped(rolls: Rolls) -> Iterator[Out]:
    for nodeset, node in rolls.stopped.items():
        old = rolls.outdated[nodeset]
        text = (
            "the node has not returned after its update; nodes of this nodeset with old "
            f"settings: {old}"
        )
        doing = (
            f"the update of nodeset {nodeset} stops until you repair this node or change the "
            "settings"
        )
        yield Out(node, ROLL, text, doing, needs_person=True)


def _status(view: View, finding: Finding) -> str:
    if view.may_be_lifted:
        return "the reconciler now returns the node to service"
    if view.is_foreign:
        return (
            "the reconciler does not change this drain; repair the node, then resume it with "
            "scontrol"
        )
    if finding.drains:
        return "drained" if view.is_drained else "being drained"
    if view.record and view.record.state & SILENT:
        return "not responding"
    return "waiting"
