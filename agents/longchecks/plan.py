"""Plan the next moves of a run: a pure function of the observed state."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agents.drains import LONGCHECK, Evidence
from agents.longchecks.judge import Verdict
from agents.longchecks.series import Record, Target
from agents.longchecks.wanted import nodeset_of
from agents.slurm import Job, Node

SETTLES = 180
"""Seconds after which a request without an answer is either done or lost. slurmrestd waits 40
seconds for slurmctld, and the client waits 90 seconds for slurmrestd."""
ARRIVES = 90
"""Seconds that a job's output may take to appear here: NFS clients cache a folder for up to 60
seconds."""
_OUT = frozenset(
    {"DOWN", "DRAIN", "FAIL", "FUTURE", "INVALID_REG", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN"}
)
_RESERVED = frozenset({"MAINTENANCE", "RESERVED"})
_TO_AN_END = frozenset({"COMPLETED", "FAILED"})
_ENDED = _TO_AN_END | {
    *("BOOT_FAIL", "CANCELLED", "DEADLINE", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "TIMEOUT"),
}


@dataclass(frozen=True)
class Submission:
    """A requested job."""

    at: int
    """Seconds since 1970."""
    job: int | None = None
    """Its ID; None until an answer reports it."""
    ended: int | None = None
    """Seconds since 1970 at which it was first seen to be over, or to be unknown to Slurm."""


@dataclass(frozen=True)
class Run:
    """One run of a check: all that must outlive its pod."""

    id: str
    started: int
    """Seconds since 1970."""
    targets: tuple[Target, ...]
    reservation: str | None = None
    """Reservation that the jobs use."""
    submissions: Mapping[Target, Submission] = field(default_factory=dict)

    @property
    def nodes(self) -> list[str]:
        targets = (*self.targets, *self.submissions)
        return sorted({node for target in targets for node in target})


@dataclass(frozen=True)
class Seen:
    """Observed state at one moment."""

    now: int
    """Seconds since 1970."""
    nodes: Mapping[str, Node]
    jobs: Mapping[Target, Job]
    """Jobs of the run that Slurm remembers."""
    outputs: frozenset[Target]
    """Targets whose job's output is complete."""
    results: Mapping[Target, Record]
    """Measurements that are in the series already."""
    quiet_since: int
    """Seconds since 1970 since which no job has run and no node was measured."""


@dataclass(frozen=True)
class Move:
    """One step of a run. `leave` says why a target is not measured, and changes nothing."""

    kind: Literal["submit", "cancel", "collect", "forget", "note", "wait", "leave"]
    target: Target
    why: str = ""


def is_over(moves: Sequence[Move]) -> bool:
    return all(move.kind == "leave" for move in moves)


# --- Targets -------------------------------------------------------------------------------------


def in_order(nodes: Sequence[str]) -> list[str]:
    """Sort names by the numbers in them: `cpu-2` before `cpu-10`."""
    return sorted(nodes, key=lambda name: [int(p) if p.isdecimal() else p for p in _PARTS(name)])


_PARTS = re.compile(r"(\d+)").split


def targets(nodes: Mapping[str, Node], size: int) -> tuple[Target, ...]:
    """Return each node, or pairs of neighbours in one nodeset that are in service.

    If their number is odd, the last one is measured with the first.
    """
    names = in_order(list(nodes))
    if size == 1:
        return tuple((name,) for name in names)
    found: list[Target] = []
    for nodeset in dict.fromkeys(map(nodeset_of, names)):
        there = [n for n in names if nodeset_of(n) == nodeset and not nodes[n].state & _OUT]
        if len(there) % 2 and len(there) > 1:
            there.append(there[0])
        found += zip(there[::2], there[1::2], strict=False)
    return tuple(found)


# --- Moves ---------------------------------------------------------------------------------------


def plan(run: Run, seen: Seen, *, at_once: int, wait: int) -> list[Move]:
    """Return a move for each target without a result."""
    over = seen.now - seen.quiet_since >= wait
    moves = [
        _of_job(submission, target, seen, run, over)
        for target, submission in run.submissions.items()
        if target not in seen.results
    ]
    taken = {node for move in moves for node in move.target}
    room = at_once - len(moves)
    idle = [t for t in run.targets if t not in seen.results and t not in run.submissions]
    for target in (*idle, *_second_looks(run, seen)):
        move = _of_idle(target, seen, run, over, bool(taken.intersection(target)) or room <= 0)
        if move.kind == "submit":
            taken |= set(target)
            room -= 1
        moves.append(move)
    return moves


def _of_job(submission: Submission, target: Target, seen: Seen, run: Run, over: bool) -> Move:
    job = seen.jobs.get(target)
    if job is None:
        return _of_unseen(submission, target, seen)
    state = job.state
    if not state & _ENDED:
        taken = [name for name in target if not _is_free(seen.nodes.get(name), run)]
        if "PENDING" in state and (taken or over):
            why = (
                f"{taken[0]} is in use" if taken else f"Slurm does not start the job: {job.reason}"
            )
            return Move("cancel", target, why)
        return Move("wait", target)
    if "PREEMPTED" in state or ("CANCELLED" in state and not job.nodes):
        return Move("forget", target, "job preempted or cancelled")
    if not state & _TO_AN_END:
        return Move("collect", target, f"job ended as {', '.join(sorted(state))}")
    return _of_output(submission, target, seen, f"no output of job {job.id}")


def _of_unseen(submission: Submission, target: Target, seen: Seen) -> Move:
    """Return the move for a job that Slurm does not know: it never arrived, or ended long ago."""
    if target in seen.outputs:
        return Move("collect", target)
    if submission.job is None:
        lost = seen.now - submission.at >= SETTLES
        return Move("forget" if lost else "wait", target, "job request lost" if lost else "")
    move = _of_output(submission, target, seen, "")
    return Move("forget", target, "job left no output") if move.kind == "collect" else move


def _of_output(submission: Submission, target: Target, seen: Seen, why: str) -> Move:
    if target in seen.outputs:
        return Move("collect", target)
    if submission.ended is None:
        return Move("note", target)
    return Move("collect" if seen.now - submission.ended >= ARRIVES else "wait", target, why)


def _of_idle(target: Target, seen: Seen, run: Run, over: bool, later: bool) -> Move:
    for name in target:
        node = seen.nodes.get(name)
        if node is None:
            return Move("leave", target, f"Slurm has no node {name}")
        if node.state & _OUT:
            reason = f": {node.reason}" if node.reason else ""
            return Move("leave", target, f"{name} is {_state(node)}{reason}")
    taken = [name for name in target if not _is_free(seen.nodes[name], run)]
    if over:
        busy = f"{taken[0]} is {_state(seen.nodes[taken[0]])}" if taken else "others came first"
        return Move("leave", target, f"{busy}; left for the next run")
    return Move("wait" if taken or later else "submit", target)


def _is_free(node: Node | None, run: Run) -> bool:
    """Return whether no job is on a node, or about to start there."""
    if node is None:
        return False
    reserved = _RESERVED if run.reservation else frozenset[str]()
    return node.state - reserved <= {"IDLE", "CLOUD", "DYNAMIC_NORM"} and not node.alloc_cpus


def _state(node: Node) -> str:
    return "+".join(sorted(node.state - {"CLOUD", "DYNAMIC_NORM"})).lower()


def _second_looks(run: Run, seen: Seen) -> Iterator[Target]:
    """Yield, for each node of a bad pair, a pair with a node that was found good."""
    under_way = {node for t in run.submissions if t not in seen.results for node in t}
    well = {n for t, r in seen.results.items() if r.verdict in _SOUND for n in t}
    for target in run.targets:
        record = seen.results.get(target)
        if len(target) < 2 or record is None or record.verdict is not Verdict.BAD:
            continue
        for node in target:
            partners = {n for t in seen.results if node in t for n in t}
            # Two partners are enough, or one with which the node is good.
            if len(partners) > 2 or node in well or node in under_way:
                continue
            kin = [n for n in in_order(list(well - partners)) if nodeset_of(n) == nodeset_of(node)]
            free = [n for n in kin if _is_free(seen.nodes.get(n), run) and n not in under_way]
            if kin:
                yield (node, (free or kin)[0])


_SOUND = (Verdict.GOOD, Verdict.UNJUDGED)


# --- Drains --------------------------------------------------------------------------------------


def drain_reason(check: str, text: str) -> str:
    return f"{LONGCHECK}{check}: {text}"


def decide(
    node: Node, check: str, verdict: Verdict, at: int
) -> Literal["drain", "lift", "leave"] | None:
    """Return what to do with a node after a measurement that began `at`.

    `leave`: the node is out of service, and stays so with its present reason. A drain is lifted
    only if it is this check's, is older than the measurement, and nothing else is wrong. A quick
    check that failed meanwhile has left no drain of its own, but its evidence.
    """
    out = node.state & _OUT
    if verdict is Verdict.BAD:
        return "leave" if out else "drain"
    ours = node.reason.startswith(f"{LONGCHECK}{check}:")
    if verdict is not Verdict.GOOD or not ours or out != {"DRAIN"}:
        return None
    evidence = Evidence.parse(node.extra)
    older = node.reason_time is not None and node.reason_time.timestamp() < at
    return "lift" if older and not (evidence and evidence.failed) else "leave"
