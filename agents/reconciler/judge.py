"""Find the problems of each wanted node, with pure functions of the state and the settings.

A *wanted* node is a node in the settings. A *finding* is a problem of a node, with its cause.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from agents import objects
from agents.drains import (
    CHECK,
    KUBERNETES,
    LONGEST_NAME,
    NOT_RESPONDING,
    OWN,
    START,
    Evidence,
    is_own,
)
from agents.reconciler.causes import (
    CONFIG,
    CORDONED,
    DUPLICATE,
    GATED,
    JAIL,
    LEAVING,
    MAINTENANCE,
    NOT_READY,
    POD,
    SIZE,
    SLURMD,
    UNSCHEDULED,
)
from agents.reconciler.observed import Condition, Machine, Observed, Pod
from agents.reconciler.wanted import Nodeset, Wanted
from agents.slurm import Node

DRAINED = frozenset({"DRAIN", "FAIL"})
SILENT = frozenset({"DOWN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_UP", "FUTURE", "UNKNOWN"})
AWAY = frozenset({"DOWN", "NOT_RESPONDING"})
"""States of a lost node. A node in any other state of SILENT has not started yet."""
ASLEEP = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"})
"""States of a node on demand that sleeps, stops or starts."""
INVALID = frozenset({"INVALID_REG", "INVALID", "ERROR"})
NOT_IN_SERVICE = DRAINED | SILENT | INVALID
DUPLICATE_JOB = "Duplicate jobid"
"""Reason with which slurmctld drains a node that already runs a job (source: agent.c, Slurm 24.11).

The node is healthy: slurmctld was killed before it saved that the job had started.
"""

UNSTEADY = 300
"""Seconds for which the reconciler treats a restarted munged (the authentication daemon) as failed.
The kubelet waits at most this long before it restarts a container."""

_AWAY_FROM_JOBS = frozenset({GATED, POD, SLURMD, CONFIG})
"""With each of these causes, a node cannot run jobs, although slurmctld may not have noticed this
yet."""
_CLOCKS = 5
"""Maximum difference between clocks of machines in seconds."""

_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")


class Kind(Enum):
    """Category of a cause. It determines how the reconciler reacts to the cause."""

    WISH = "wish"
    """A person requests that the node leaves service. The reconciler drains the node and repairs
    nothing."""
    FAULT = "fault"
    """Fault of the node. If the fault returns after a repair step, that step did not help."""
    ABSENT = "absent"
    """The node is absent, perhaps only late. If the node is absent again after a repair, the reason
    may be a different one."""
    HELD = "held"
    """The reconciler does nothing about the cause."""


@dataclass(frozen=True)
class Finding:
    cause: str
    kind: Kind
    text: str
    drains: bool = False
    """Whether the node must be drained while Kubernetes reports the cause."""


@dataclass(frozen=True)
class View:
    """Observed state of a wanted node, and its findings."""

    name: str
    nodeset: Nodeset
    record: Node | None
    pod: Pod | None
    machine: Machine | None
    """Machine of the pod, or None."""
    findings: tuple[Finding, ...] = ()
    is_unclear: bool = False
    """Whether a condition of the machine is Unknown in Kubernetes."""

    @property
    def reason(self) -> str:
        return self.record.reason if self.record else ""

    @property
    def is_drained(self) -> bool:
        return self.record is not None and bool(self.record.state & DRAINED)

    @property
    def is_in_service(self) -> bool:
        return self.record is not None and not self.record.state & NOT_IN_SERVICE

    @property
    def takes_jobs(self) -> bool:
        """Whether the node is in service, without a cause that keeps jobs away from it."""
        causes = {finding.cause for finding in self.findings}
        return self.is_in_service and not causes & _AWAY_FROM_JOBS

    @property
    def is_empty(self) -> bool:
        """Whether the node has no job in Slurm."""
        return self.record is None or not self.record.has_jobs

    @property
    def is_out(self) -> bool:
        """Whether no new job can start on the node."""
        return self.record is None or bool(self.record.state & (DRAINED | {"DOWN"}))

    @property
    def is_up(self) -> bool:
        """Whether the node's pod is ready and its slurmd responds."""
        return (
            self.record is not None
            and not self.record.state & (SILENT | INVALID)
            and self.pod is not None
            and self.pod.is_ready
            and self.pod.leaves is None
        )

    def is_without_munged(self, now: int) -> bool:
        """Return whether the node's munged does not run, or has just been restarted."""
        munged = self.pod.munged if self.pod else None
        return munged is not None and (not munged.is_ready or now - munged.ended < UNSTEADY)

    @property
    def is_away(self) -> bool:
        """Whether the node should respond to slurmctld, but does not."""
        state = self.record.state if self.record else frozenset()
        return bool(state & AWAY) and not state & (SILENT - AWAY)

    @property
    def is_foreign(self) -> bool:
        """Whether a person or another program took the node out of service.

        The reconciler leaves such a node alone.
        """
        record = self.record
        if record is None or is_own(record.reason) or self.has_duplicate_job:
            return False
        by_hand = "DOWN" in record.state and record.reason not in ("", "none")
        return self.is_drained or (by_hand and not record.reason.startswith(NOT_RESPONDING))

    @property
    def is_wished_out(self) -> bool:
        """Whether a person has requested that the node leaves service."""
        return any(finding.kind is Kind.WISH for finding in self.findings)

    @property
    def is_to_drain(self) -> bool:
        """Whether the node must be drained because of a state in Kubernetes. The drain limit may
        delay the drain."""
        return any(finding.drains for finding in self.findings)

    @property
    def has_drain_of_kubernetes(self) -> bool:
        return self.is_drained and self.reason.startswith(KUBERNETES)

    @property
    def has_duplicate_job(self) -> bool:
        """Whether slurmctld drained the node because slurmctld had started a job twice."""
        # slurmctld appends text to the reason when the node stops responding (source: node_mgr.c).
        return self.is_drained and self.reason.partition(" : ")[0] == DUPLICATE_JOB

    @property
    def failed_check(self) -> str | None:
        """Name of the check that drained the node, or None."""
        return cause_of(self.reason, CHECK) if self.is_drained else None

    @property
    def failing(self) -> str | None:
        """Check that keeps the node out of service, or None.

        This is the check that drained the node, or a check that failed later.
        """
        name, evidence = self.failed_check, self.evidence
        ours = name is not None or self.has_drain_of_kubernetes
        if ours and self._is_fresh and evidence and evidence.failed and name not in evidence.failed:
            return evidence.failed[0]
        return name

    @property
    def _is_fresh(self) -> bool:
        """Whether the node's checks have run since the drain of the node."""
        evidence, since = self.evidence, self.record.reason_time if self.record else None
        return evidence is not None and since is not None and evidence.at > since.timestamp()

    @cached_property
    def evidence(self) -> Evidence | None:
        return Evidence.parse(self.record.extra) if self.record else None

    def is_unchecked(self, now: int, age: int) -> bool:
        """Return whether jobs can start, but checks have reported nothing for `age` seconds.

        Returns False if the pod became ready less than `age` seconds ago, because checks need time
        for their first run.
        """
        pod = self.pod
        if pod is None or not (self.is_in_service and self.is_up) or now - pod.ready_since <= age:
            return False
        evidence = self.evidence
        return evidence is None or now - evidence.at > age

    @property
    def has_passed(self) -> bool:
        """Whether all checks passed after the drain, including the check that drained the node.

        If no checks run, a drain because of Kubernetes' state counts as passed.
        """
        evidence = self.evidence
        if evidence is None:
            return self.failed_check is None
        passed = not evidence.failed and self.failed_check not in evidence.unknown
        return self._is_fresh and passed

    @property
    def may_be_lifted(self) -> bool:
        """Whether the reconciler is responsible for the drain and may lift it now."""
        return (
            (
                self.has_drain_of_kubernetes
                or self.failed_check is not None
                or (self.has_duplicate_job and self.is_empty)
            )
            and self.is_up
            and not self.is_unclear
            and self.machine is not None
            and self.has_passed
            and not self.is_to_drain
        )


def cause_of(reason: str, source: str) -> str | None:
    """Return the cause in a reason of this source: `disk` in `slurmstack:check:disk: full`.

    Return None if the reason contains no cause, or if the cause is longer than the name of any
    check.
    """
    if not reason.startswith(source):
        return None
    cause = reason.removeprefix(source).partition(":")[0].strip()
    return cause if 0 < len(cause) <= LONGEST_NAME else None


def _sleeps(nodeset: Nodeset, record: Node | None) -> bool:
    """Return whether a node sleeps, starts or stops. In these states, agents/ondemand is
    responsible for the node."""
    return nodeset.on_demand and (
        record is None or bool(record.state & ASLEEP) or record.reason.startswith(START)
    )


def views(observed: Observed, wanted: Wanted, now: int) -> dict[str, View]:
    """Return all wanted nodes by name, except nodes on demand that sleep, start or stop."""
    found = {}
    for name, nodeset in wanted.nodes().items():
        if _sleeps(nodeset, observed.records.get(name)):
            continue
        pod = observed.pods.get(name)
        machine = observed.machines.get(pod.machine) if pod else None
        view = View(name, nodeset, observed.records.get(name), pod, machine)
        found[name] = View(
            name,
            nodeset,
            view.record,
            pod,
            machine,
            tuple(_findings(view, wanted, now, observed.configured)),
            machine is not None and _is_unclear(machine, wanted),
        )
    return found


def _findings(view: View, wanted: Wanted, now: int, configured: float) -> Iterator[Finding]:
    machines = list(_of_machine(view, wanted))
    drains = list(_of_drain(view, machines))
    absences = []
    if not any(finding.cause == NOT_READY for finding in machines):
        absences = list(_of_absence(view, now))
    config = [] if absences else list(_of_configuration(view, configured))
    size = _of_size(view)
    found = [*machines, *drains, *absences, *([size] if size else [])]
    yield from found
    yield from config
    if not found and not view.is_in_service:
        state = "+".join(sorted(view.record.state)) if view.record else "unknown"
        yield Finding(SLURMD, Kind.ABSENT, f"Slurm reports the node's state {state}")


# --- Machine of a node ---------------------------------------------------------------------------


def _of_machine(view: View, wanted: Wanted) -> Iterator[Finding]:
    """Yield the problems that Kubernetes reports about the pod's machine."""
    machine = view.machine
    if view.pod is None or not view.pod.machine:
        return
    if machine is None:
        text = (
            f"Kubernetes no longer has the machine {view.pod.machine}, on which the node's pod runs"
        )
        yield Finding(NOT_READY, Kind.ABSENT, text, drains=True)
        return
    ready = machine.conditions.get(
        "Ready",
        Condition("Unknown", "the kubelet of this machine has never reported to Kubernetes"),
    )
    if ready.status != "True":
        text = f"machine {machine.name}: {ready.text or 'not ready'}"
        yield Finding(NOT_READY, Kind.ABSENT, text, drains=True)
    if machine.is_cordoned:
        text = (
            f"machine {machine.name} is cordoned; to end this drain, run `kubectl uncordon` for "
            "this machine"
        )
        yield Finding(CORDONED, Kind.WISH, text, drains=True)
    keys = {*machine.annotations, *(taint["key"] for taint in machine.taints)}
    for key in sorted(keys & wanted.maintenance):
        yield Finding(
            MAINTENANCE,
            Kind.WISH,
            f"machine {machine.name} has the taint or annotation '{key}', which announces "
            "maintenance; the drain ends when the taint or annotation is removed",
            drains=True,
        )
    for name, cause in sorted(wanted.conditions.items()):
        condition = machine.conditions.get(name)
        if condition and condition.status == "True":
            text = f"machine {machine.name}: {condition.text or name}"
            yield Finding(cause, Kind.FAULT, text, drains=True)


def _is_unclear(machine: Machine, wanted: Wanted) -> bool:
    said: Mapping[str, Condition] = machine.conditions
    return any(said[name].status == "Unknown" for name in wanted.conditions if name in said)


# --- Drain of a node -----------------------------------------------------------------------------


def _of_drain(view: View, machines: list[Finding]) -> Iterator[Finding]:
    record = view.record
    if record is None:
        return
    if view.is_foreign:
        who = f", by {record.reason_user}" if record.reason_user else ""
        yield Finding("drained", Kind.HELD, f"{record.reason or 'no reason given'}{who}")
    elif view.has_duplicate_job:
        text = (
            "slurmctld was killed before it saved that a job had started, and then started "
            "the job again; no action needed: the node returns when the job ends"
        )
        yield Finding(DUPLICATE, Kind.HELD, text)
    elif failing := view.failing:
        drained_for = f"{CHECK}{failing}"
        since = (
            "this check failed after the node was drained; see the output of check-node on the node"
        )
        text = view.reason.removeprefix(drained_for).lstrip(": ")
        # If the check has passed since the drain, repair nothing. The drain may remain only because
        # of a state in Kubernetes.
        kind = Kind.HELD if view.has_passed else Kind.FAULT
        yield Finding(failing, kind, text if view.reason.startswith(drained_for) else since)
    elif view.has_drain_of_kubernetes and not machines:
        cause = cause_of(view.reason, KUBERNETES) or "unnamed"
        yield Finding(
            cause,
            Kind.HELD,
            "the cause of the drain is gone; no action needed: the node returns when its "
            "checks pass",
        )
    elif view.is_drained and is_own(view.reason) and not view.has_drain_of_kubernetes:
        cause = view.reason.removeprefix(OWN).partition(":")[0]
        yield Finding(cause, Kind.ABSENT if cause == JAIL else Kind.HELD, view.reason)


# --- Absence of a node ---------------------------------------------------------------------------


def _of_absence(view: View, now: int) -> Iterator[Finding]:
    pod, record = view.pod, view.record
    if pod is None:
        yield Finding(POD, Kind.ABSENT, "the node has no pod; check the events of its StatefulSet")
    elif pod.leaves is not None:
        if now > pod.leaves + objects.STUCK:
            yield Finding(
                POD,
                Kind.ABSENT,
                "the node's pod is stuck terminating; check the kubelet of its machine",
            )
        elif not view.is_in_service:
            yield Finding(
                LEAVING,
                Kind.HELD,
                "the node's pod is terminating; no action needed: Kubernetes creates a new pod",
            )
    elif pod.is_gated:
        text = (
            "the pod waits until the reconciler has chosen its machine ('keep_machine'), "
            "usually for some seconds; no action needed"
        )
        yield Finding(GATED, Kind.HELD, text)
    elif not pod.machine:
        yield Finding(UNSCHEDULED, Kind.ABSENT, pod.why)
    elif not pod.is_ready:
        yield Finding(POD, Kind.ABSENT, pod.why)
    elif (record is None or record.state & SILENT) and not view.is_foreign:
        problem = "Slurm has no record of the node" if record is None else "slurmd does not respond"
        yield Finding(
            SLURMD,
            Kind.ABSENT,
            f"the node's pod is ready, but {problem}; check the log of the pod's container slurmd",
        )


def _of_configuration(view: View, configured: float) -> Iterator[Finding]:
    """Yield a finding if slurmd has not restarted with the new configuration yet."""
    started = view.record.started if view.record else None
    if started and started.timestamp() < configured - _CLOCKS:
        text = "the node's slurmd has not restarted with the new configuration yet"
        yield Finding(CONFIG, Kind.HELD, text)


def _of_size(view: View) -> Finding | None:
    record, wanted = view.record, view.nodeset
    if record is None or view.pod is None:
        return None
    if wanted.conf and view.pod.conf != wanted.conf:
        # The pod is older than the last edit. The roll-out will replace it.
        return None
    gpus = sum(map(int, _GPUS.findall(record.gres)))
    compared = {
        "CPUs": (record.cpus, wanted.cpus),
        "MiB of memory": (record.memory, wanted.memory),
        "GPUs": (gpus, wanted.gpus),
    }
    unlike = [
        f"{what} in Slurm's record of the node: {has}, expected {want}"
        for what, (has, want) in compared.items()
        if has != want
    ]
    if record.state & INVALID:
        unlike.append(
            "slurmctld refuses the node's registration; correct the sizes of the nodeset in the "
            "settings"
        )
    return Finding(SIZE, Kind.ABSENT, "; ".join(unlike)) if unlike else None
