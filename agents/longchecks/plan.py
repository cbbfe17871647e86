"""Plan the next actions of a run. All functions are pure: they only use the observed state.

A run measures its targets with a long check. A target is a node, or a pair of nodes. Each
measurement is a Slurm job. A move is the next action for one target.
"""

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
"""If a request for a job got no answer, and Slurm has no such job after this many seconds, the
request is lost. slurmrestd waits 40 seconds for slurmctld, and the client waits 90 seconds for
slurmrestd."""
ARRIVES = 90
"""A job's output must be visible in this pod within this many seconds after the end of the job. The
output may be late, because an NFS client caches the content of a folder for up to 60 seconds."""
_OUT = frozenset(
    {
        *("DOWN", "DRAIN", "FAIL", "FUTURE", "INVALID_REG", "NOT_RESPONDING", "UNKNOWN"),
        *("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"),
    }
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
    """ID of the job, or None until Slurm has reported the ID."""
    ended: int | None = None
    """Time (seconds since 1970) at which Slurm first reported the job as ended or unknown."""


@dataclass(frozen=True)
class Run:
    """Run of a check. Contains all data that must not be lost when the pod restarts."""

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
    """State of Slurm, of the jobs' outputs and of the series, as observed at one moment."""

    now: int
    """Seconds since 1970."""
    nodes: Mapping[str, Node]
    jobs: Mapping[Target, Job]
    """Jobs of the run that Slurm has not yet forgotten."""
    outputs: frozenset[Target]
    """Targets whose job has written its complete output."""
    results: Mapping[Target, Record]
    """Measurements that are already in the series."""
    quiet_since: int
    """Last time (seconds since 1970) at which a job ran or a measurement was made."""


@dataclass(frozen=True)
class Move:
    """Action of a run for one target.

    - `submit` and `cancel` start and end a job.
    - `collect` judges the job's output, and stores the result.
    - `forget` gives up a job that has no result, so that the run submits another job.
    - `note` records that Slurm has reported the end of the job.
    - `wait` does nothing yet.
    - `leave` only reports why the target is not measured.
    """

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
    """Return the targets of a run.

    If `size` is 1, each node is a target. If `size` is 2, each target is a pair of neighbours in a
    nodeset. Pairs contain only nodes in service. If a nodeset has an odd number of such nodes, the
    last node forms another pair with the first node.
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
    """Return a move for each target that has no result yet."""
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
                f"node {taken[0]} is in use"
                if taken
                else f"Slurm does not start the job, with the reason '{job.reason}'"
            )
            return Move("cancel", target, why)
        return Move("wait", target)
    if "PREEMPTED" in state or ("CANCELLED" in state and not job.nodes):
        return Move("forget", target, "Slurm preempted or cancelled the job")
    if not state & _TO_AN_END:
        return Move(
            "collect",
            target,
            f"the job ended in the state {', '.join(sorted(state))}; see its output in "
            "/var/log/slurmstack-checks in the jail",
        )
    return _of_output(
        submission,
        target,
        seen,
        f"the output of job {job.id} has not arrived; "
        "check that the user slurmstack-checks can write to /var/log/slurmstack-checks in the jail",
    )


def _of_unseen(submission: Submission, target: Target, seen: Seen) -> Move:
    """Return the move for a target whose job Slurm does not know.

    The request for this job was lost, or the job ended so long ago that Slurm has forgotten it.
    """
    if target in seen.outputs:
        return Move("collect", target)
    if submission.job is None:
        lost = seen.now - submission.at >= SETTLES
        return Move(
            "forget" if lost else "wait",
            target,
            "Slurm has no record of the job that this run requested" if lost else "",
        )
    move = _of_output(submission, target, seen, "")
    return (
        Move("forget", target, "the job of this measurement ended without output")
        if move.kind == "collect"
        else move
    )


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
            return Move("leave", target, f"Slurm has no node named '{name}'")
        if node.state & _OUT:
            reason = f": {node.reason}" if node.reason else ""
            return Move("leave", target, f"node {name} is {_state(node)}{reason}")
    taken = [name for name in target if not _is_free(seen.nodes[name], run)]
    if over:
        busy = (
            f"node {taken[0]} is {_state(seen.nodes[taken[0]])}"
            if taken
            else "other jobs ran before this job"
        )
        return Move("leave", target, f"{busy}; the next run tries again")
    return Move("wait" if taken or later else "submit", target)


def _is_free(node: Node | None, run: Run) -> bool:
    """Return whether a node is idle, and Slurm has not assigned a job to it."""
    if node is None:
        return False
    reserved = _RESERVED if run.reservation else frozenset[str]()
    return node.state - reserved <= {"IDLE", "CLOUD", "DYNAMIC_NORM"} and not node.is_allocated


def _state(node: Node) -> str:
    return "+".join(sorted(node.state - {"CLOUD", "DYNAMIC_NORM"})).lower()


def _second_looks(run: Run, seen: Seen) -> Iterator[Target]:
    """Yield a second pair for each node of a bad pair. The new partner is a node of a pair that was
    not bad."""
    under_way = {node for t in run.submissions if t not in seen.results for node in t}
    well = {n for t, r in seen.results.items() if r.verdict in _SOUND for n in t}
    for target in run.targets:
        record = seen.results.get(target)
        if len(target) < 2 or record is None or record.verdict is not Verdict.BAD:
            continue
        for node in target:
            partners = {n for t in seen.results if node in t for n in t}
            # Skip a node that has been measured with two partners, or has a good measurement:
            # its verdict is clear. Also skip a node that is being measured now.
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
    """Return what to do with a node after a measurement that started at the time `at`.

    `leave` means that the node stays out of service with its current reason.

    A drain is lifted if this long check set it before the measurement, and if no quick check
    (`agents.checks`) has failed. A quick check that fails on a drained node does not change the
    drain reason. Only the evidence in the node's record then shows this failure.
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
