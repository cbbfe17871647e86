"""Rolling updates: replace each outdated pod when its node's jobs have ended.

A pod is outdated if its StatefulSet has a newer template. Kubernetes does not replace such pods
(`updateStrategy: OnDelete`), because Kubernetes cannot wait days for jobs, and cannot replace
several pods at the same time. The reconciler drains at most a share of each nodeset, and deletes
the pods of nodes without jobs. A node that does not return stops the update of its nodeset.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agents.drains import LEAVE, ROLL
from agents.reconciler import causes
from agents.reconciler.actions import Drain, Lift, Renew
from agents.reconciler.judge import INVALID, NOT_IN_SERVICE, View
from agents.reconciler.ladder import Doing
from agents.reconciler.memory import Key, Memory
from agents.reconciler.observed import Observed, Update
from agents.reconciler.wanted import Wanted
from agents.slurm import Node

MAINTENANCE = "MAINTENANCE"
"""Flag of a node in a reservation for maintenance (Flags=MAINT)."""
RETURN = 900
"""Seconds that a node gets to return to service if `reconciler.rollout` is 0."""
REASON = f"{ROLL}: gets new settings when its jobs have ended"


@dataclass
class Rolls:
    actions: list[Drain | Renew | Lift] = field(default_factory=list)
    doing: dict[Key, Doing] = field(default_factory=dict)
    outdated: dict[str, int] = field(default_factory=dict)
    """Number of outdated pods of each nodeset that has any."""
    stopped: dict[str, str] = field(default_factory=dict)
    """Nodesets whose update has stopped, with the node that did not return."""
    goes_on: bool = False
    """Whether the next step requires no job to end and no person to act."""


def may_renew(record: Node) -> bool:
    """Return whether a node has no job, and no job can start on it."""
    return not record.has_jobs and bool(record.state & NOT_IN_SERVICE)


def roll(
    nodes: Mapping[str, View], observed: Observed, wanted: Wanted, memory: Memory, now: int
) -> Rolls:
    """Return the next actions of all updates. If no pod is outdated, the actions only lift
    drains."""
    in_vain = {node for (node, _), climb in memory.items() if climb.rung and climb.gone is None}
    found = Rolls()
    for nodeset, views in _by_nodeset(nodes.values()).items():
        if update := observed.updates.get(nodeset):
            _Nodeset(nodeset, views, update, wanted.rollout or RETURN, in_vain, now, found).roll()
    return found


def _by_nodeset(nodes: Iterable[View]) -> dict[str, list[View]]:
    found: dict[str, list[View]] = {}
    for view in nodes:
        found.setdefault(view.name.rpartition("-")[0], []).append(view)
    return found


@dataclass
class _Nodeset:
    name: str
    views: list[View]
    update: Update
    limit: int
    """Seconds that a node gets to return to service."""
    in_vain: set[str]
    """Nodes that are still out of service after the first repair step."""
    now: int
    found: Rolls

    def roll(self) -> None:
        outdated = [view for view in self.views if self._is_outdated(view)]
        self.found.actions += self._lifts()
        if not outdated:
            return
        self.found.outdated[self.name] = len(outdated)
        away = [view for view in self.views if not (view.is_up or self._is_outdated(view))]
        late = next((view.name for view in away if self._is_late(view)), None)
        if late is not None:
            self.found.stopped[self.name] = late
        returning = sum(self._is_late(view) or not self._is_overdue(view) for view in away)
        self._go_over(outdated, returning, late)

    def _go_over(self, outdated: list[View], returning: int, late: str | None) -> None:
        """Take the next step of each outdated node."""
        replaced = returning + sum(_is_drained(view) and view.is_empty for view in outdated)
        waiting = sum(_is_drained(view) and not view.is_empty for view in outdated)
        free = self._at_once() - replaced - waiting
        for view in sorted(outdated, key=_order):
            if not _serves(view):
                if not self._lacks_machine(view) or self.update.revision in self._in_use:
                    self._renew(view)
            elif _is_drained(view):
                self._go_on(view, late)
            elif late is None and self._may_begin(view) and not view.is_to_drain:
                # Nodes that wait for long jobs may use up the share. Even then, update one node
                # without jobs at a time.
                if free > 0 or (view.is_empty and not replaced):
                    self._begin(view)
                    free -= 1
                    replaced += 1
                elif view.is_empty:
                    self.found.goes_on = True

    @cached_property
    def _in_use(self) -> set[str]:
        """Revisions of the templates of all pods whose nodes are up."""
        return {view.pod.revision for view in self.views if view.is_up and view.pod}

    def _is_outdated(self, view: View) -> bool:
        pod = view.pod
        return pod is not None and pod.leaves is None and pod.revision != self.update.revision

    def _at_once(self) -> int:
        """Return how many nodes may be away at the same time: all nodes if the update waits for a
        maintenance reservation."""
        everything = len(self.views)
        if self.update.settings.in_maintenance:
            return everything
        return max(1, int(self.update.settings.share * everything))

    def _is_late(self, view: View) -> bool:
        """Return whether a node has not returned in time, and the update is the probable cause."""
        others_cause = (
            _is_lost(view) or view.is_foreign or view.is_wished_out or self._lacks_machine(view)
        )
        return self._is_overdue(view) and self._never_returned(view) and not others_cause

    def _is_overdue(self, view: View) -> bool:
        pod = view.pod
        too_old = pod is not None and pod.leaves is None and self.now - pod.created > self.limit
        return too_old or view.name in self.in_vain

    def _never_returned(self, view: View) -> bool:
        """Return whether a node has not returned with its current pod, or went down again soon
        after its return.

        If a node goes down later than that, the update is not the cause.
        """
        record, pod = view.record, view.pod
        if record is None or _is_drained(view) or record.reason.startswith(LEAVE):
            return True
        since = record.reason_time
        if pod is None or since is None:
            return False
        return 0 <= since.timestamp() - pod.created <= self.limit

    def _lacks_machine(self, view: View) -> bool:
        """Return whether a node has no machine, although other nodes run with its template."""
        pod = view.pod
        if pod is None or pod.machine or pod.is_gated:
            return False
        return pod.revision in self._in_use

    def _may_begin(self, view: View) -> bool:
        state = view.record.state if view.record else frozenset()
        return not self.update.settings.in_maintenance or MAINTENANCE in state

    # --- Steps --------------------------------------------------------------------------------

    def _begin(self, view: View) -> None:
        self.found.actions.append(Drain(view.name, REASON))
        self._renew(view)

    def _go_on(self, view: View, late: str | None) -> None:
        """Replace a drained node, wait for its jobs, or return it to service."""
        if late is not None or not self._may_begin(view):
            self.found.actions.append(_lift(view))
        elif view.is_empty:
            self._renew(view)
        else:
            self.found.doing[view.name, causes.ROLL] = Doing("waits until the node's jobs end")

    def _renew(self, view: View) -> None:
        """Replace a node's pod, unless the node has jobs or must stay."""
        if view.pod and view.is_empty and not _is_held(view):
            self.found.actions.append(Renew(view.name, view.pod.uid, view.record is not None))
            self.found.goes_on = True

    def _lifts(self) -> Iterator[Lift]:
        """Lift the drains of nodes that no longer need an update.

        Such a node has a new pod, or an edit has restored the template of the node's pod.
        """
        for view in self.views:
            if _is_drained(view) and view.is_up and not self._is_outdated(view):
                yield _lift(view)


def _is_drained(view: View) -> bool:
    """Return whether a node is drained for an update."""
    return view.is_drained and view.reason.startswith(ROLL)


def _serves(view: View) -> bool:
    """Return whether a node is in service, or was in service until an update drained the node."""
    return view.is_up and (view.is_in_service or _is_drained(view))


def _is_lost(view: View) -> bool:
    return any(finding.cause == causes.NOT_READY for finding in view.findings)


def _is_held(view: View) -> bool:
    """Return whether a pod must stay: a person works on the node, or its machine is lost.

    slurmctld itself drains a node (INVALID_REG) if the size of its outdated pod does not match the
    configuration. No person works on such a node.
    """
    by_person = view.is_foreign and not (view.record and view.record.state & INVALID)
    return by_person or view.is_wished_out or _is_lost(view)


def _order(view: View) -> tuple[bool, bool, bool, str]:
    """Sort nodes: first nodes out of service, then nodes without jobs. Drained nodes precede other
    nodes."""
    return _serves(view), not view.is_empty, not _is_drained(view), view.name


def _lift(view: View) -> Lift:
    since = view.record.reason_time if view.record else None
    return Lift(view.name, view.reason, since)
