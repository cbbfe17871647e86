"""Run a check on all its nodes or pairs of nodes, with jobs that Slurm starts on free nodes.

A run can be killed at any moment. The next pod continues the run, and submits no job twice. This
is possible because

- the run writes each request to disk before it sends the request to Slurm,
- each job's comment contains the run and the nodes,
- a job's output outlives the job.
"""

import json
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from agents.longchecks import series as files
from agents.longchecks.judge import Verdict, conclude, judge
from agents.longchecks.parsers import NoValueError
from agents.longchecks.plan import (
    Move,
    Run,
    Seen,
    Submission,
    decide,
    drain_reason,
    is_over,
    plan,
    targets,
)
from agents.longchecks.registry import END, Check
from agents.longchecks.series import Record, Series, Target
from agents.longchecks.wanted import Wanted, nodeset_of
from agents.slurm import Client, Fault, Job, JobRequest, Node, SlurmError
from agents.slurm.client import INVALID_JOB_ID

POLL = 10.0
"""Seconds between two reads of Slurm's state."""
STALE = 12 * 3600
"""Age in seconds. The program does not continue a killed run that is older. Instead, it waits until
the jobs of the killed run have ended, and then starts a new run."""
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/lib/slurmstack"
INVALID_NODE_NAME = 2018
"""Slurm's error number for an unknown node (ESLURM_INVALID_NODE_NAME in slurm_errno.h)."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Summary:
    """Result of a run."""

    records: tuple[Record, ...]
    left: Mapping[str, str]
    """Nodes that were not measured, with the reasons."""
    bad: tuple[str, ...]
    """Bad nodes. This run has drained them, unless they were already out of service."""

    @property
    def is_without_value(self) -> bool:
        """Whether jobs ran, but none of them measured a value."""
        return bool(self.records) and all(record.value is None for record in self.records)


class Runner:
    """Runs one check. Methods raise `SlurmError`, `OSError` and, for an invalid file, `ValueError`.

    `client` has the rights of SlurmUser, and `submitter` those of the checks' user. `outputs` is
    the folder of the jobs' outputs in this pod.
    """

    def __init__(  # noqa: PLR0913 -- the clock and the output are parameters for tests
        self,
        check: Check,
        wanted: Wanted,
        client: Client,
        submitter: Client,
        series: Series,
        outputs: Path,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        say: Say = print,
    ) -> None:
        self.check = check
        self.wanted = wanted
        self.series = series
        self._client = client
        self._submitter = submitter
        self._outputs = outputs
        self._clock = clock
        self._sleep = sleep
        self._say = say
        self._file = series.folder / check.name / "run.json"

    def run(self, names: Sequence[str] = (), reservation: str | None = None) -> Summary:
        """Measure the given nodes, or all nodes of the check, and drain bad nodes.

        If an earlier run was interrupted, this function continues it if the run is recent and has
        the same nodes and reservation. Otherwise, this function waits for the end of the jobs of
        the interrupted run before it starts a new run. Raises `BusyError` if another process
        already runs this check.
        """
        with files.alone(self.series.folder / self.check.name / ".run.lock", wait=False):
            unfinished = self._load()
            nodes = self._nodes(names)
            wanted = targets(nodes, self.check.nodes)
            if unfinished and not self._is_same(unfinished, names, reservation, wanted):
                self._say(
                    f"long check {self.check.name}: waiting until the jobs of an interrupted run "
                    "end"
                )
                self._follow(unfinished, at_once=0)
                unfinished = None
            run = unfinished or self._begin(wanted, reservation)
            return self._follow(run, self.wanted.at_once)

    def record(self, names: Sequence[str], output: str) -> Summary:
        """Record a measurement that an operator made with the check's script.

        `output` is the output of the script. Drains nodes and lifts drains like `run`.
        """
        self._refuse_others(names, {node.name for node in self._client.nodes()})
        now = int(self._clock())
        run = Run(f"hand-{now}", now, (tuple(names),))
        record = self._settle(run, run.targets[0], {}, at=now, output=output)
        return self._summary([], {record.nodes: record})

    # --- A run ------------------------------------------------------------------------------------

    def _nodes(self, names: Sequence[str]) -> dict[str, Node]:
        nodes = {node.name: node for node in self._client.nodes()}
        self._refuse_others(names, nodes)
        chosen = names or [name for name in nodes if self.wanted.is_of(self.check, name)]
        return {name: nodes[name] for name in chosen}

    def _refuse_others(self, names: Sequence[str], known: Container[str]) -> None:
        for name in names:
            if name not in known or not self.wanted.is_of(self.check, name):
                fit = ", ".join(self.wanted.checks[self.check.name].nodesets)
                raise ValueError(
                    f"--node {name}: expected a Slurm node of one of the nodesets {fit}; "
                    "sinfo lists the nodes"
                )

    def _is_same(
        self, run: Run, names: Sequence[str], reservation: str | None, wanted: Sequence[Target]
    ) -> bool:
        fresh = self._clock() - run.started < STALE
        about = {node for target in run.targets for node in target}
        asked = set(names) or {node for target in wanted for node in target} | about
        return fresh and run.reservation == reservation and about == asked

    def _begin(self, wanted: tuple[Target, ...], reservation: str | None) -> Run:
        now = int(self._clock())
        run = Run(f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S}", now, wanted, reservation)
        self._save(run)
        return run

    def _follow(self, run: Run, at_once: int) -> Summary:
        quiet_since = int(self._clock())
        results = self.series.of_run(self.check.name, run.id, run.nodes)
        while True:
            run, seen = self._look(run, results, quiet_since)
            quiet_since = seen.quiet_since
            wait = self.wanted.wait if at_once else 0
            moves = plan(run, seen, at_once=at_once, wait=wait)
            if is_over(moves):
                break
            for move in moves:
                if move.kind == "collect":
                    results = {**results, move.target: self._collect(run, move, seen, results)}
                    quiet_since = seen.now
                else:
                    run = self._do(run, move, seen)
            self._sleep(POLL)
        summary = self._summary(moves, results)
        self._file.unlink()
        return summary

    def _look(
        self, run: Run, results: Mapping[Target, Record], quiet_since: int
    ) -> tuple[Run, Seen]:
        # Read the nodes before the jobs. If a job of this run is still pending in the later read,
        # then another job made the node busy in the earlier read.
        nodes = {node.name: node for node in self._client.nodes()}
        run = self._find_lost(run, results)
        open_ = {t: s for t, s in run.submissions.items() if t not in results}
        jobs = {t: job for t, s in open_.items() if (job := self._job(run, t, s))}
        whole = frozenset(t for t, s in open_.items() if END in self._output(run, t, s))
        now = int(self._clock())
        if any("RUNNING" in job.state for job in jobs.values()):
            quiet_since = now
        return run, Seen(now, nodes, jobs, whole, results, quiet_since)

    def _find_lost(self, run: Run, results: Mapping[Target, Record]) -> Run:
        """Find the jobs whose requests got no answer, and record their IDs."""
        lost = [t for t, s in run.submissions.items() if s.job is None and t not in results]
        if not lost:
            return run
        ids = {job.comment: job.id for job in self._client.jobs() if job.user == self.wanted.user}
        for target in lost:
            submission = run.submissions[target]
            if (found := ids.get(_mark(run, target, submission))) is not None:
                run = self._submitted(run, target, replace(submission, job=found))
        return run

    def _job(self, run: Run, target: Target, submission: Submission) -> Job | None:
        """Return the job, or None if Slurm no longer has it.

        The comment identifies the job, because Slurm reuses IDs after a loss of state.
        """
        if submission.job is None:
            return None
        try:
            found = self._client.job(submission.job)
        except SlurmError as error:
            if INVALID_JOB_ID in error.numbers:
                return None
            raise
        mark = _mark(run, target, submission)
        return next((job for job in found if job.comment == mark), None)

    def _do(self, run: Run, move: Move, seen: Seen) -> Run:
        target = move.target
        if move.kind == "submit":
            return self._submit(run, target, seen)
        if move.kind == "cancel":
            self._say(
                f"{'+'.join(target)}: cancelling the pending job of this measurement: {move.why}"
            )
            self._client.cancel(seen.jobs[target].id)
        elif move.kind == "forget":
            self._say(f"{'+'.join(target)}: {move.why}; submitting a new job")
            return self._submitted(run, target, None)
        elif move.kind == "note":
            return self._submitted(run, target, replace(run.submissions[target], ended=seen.now))
        return run

    def _submit(self, run: Run, target: Target, seen: Seen) -> Run:
        """Write a request to disk, then send it to Slurm."""
        submission = Submission(int(self._clock()))
        run = self._submitted(run, target, submission)
        nodes = [seen.nodes[name] for name in target]
        gpus = self.wanted.nodesets[nodeset_of(target[0])].gpus
        request = JobRequest(
            name=f"longcheck-{self.check.name}",
            script=self.check.script(self.wanted.logs),
            directory="/tmp",  # noqa: S108  # private to the job
            environment=(
                f"PATH={PATH}",
                f"MEMORY_MIB={min(node.memory for node in nodes)}",
                f"GPUS={gpus}",
                f"SECOND={target[-1]}",
            ),
            partition=self.wanted.partition,
            reservation=run.reservation,
            nodes=len(target),
            tasks=len(target),
            on_nodes=target,
            # 0 requests all memory of the node. The partition's OverSubscribe=EXCLUSIVE allocates
            # all CPUs, but not the memory. Source: slurm.conf(5).
            memory_per_node=0,
            time_limit=self.check.minutes,
            output=f"{self.wanted.logs}/{self._file_name(run, target, submission)}",
            comment=_mark(run, target, submission),
        )
        try:
            job = self._submitter.submit(request)
        except SlurmError as error:
            if error.fault is Fault.UNREACHABLE:
                # Keep the submission, because Slurm may have received the request. The next call of
                # `_find_lost` finds out.
                return run
            self._submitted(run, target, None)
            raise
        return self._submitted(run, target, replace(submission, job=job))

    # --- Results ----------------------------------------------------------------------------------

    def _collect(
        self, run: Run, move: Move, seen: Seen, results: Mapping[Target, Record]
    ) -> Record:
        target, submission = move.target, run.submissions[move.target]
        at = _began(seen.jobs.get(target), submission)
        output = self._output(run, target, submission)
        return self._settle(run, target, results, at=at, output=output, why=move.why)

    def _settle(
        self,
        run: Run,
        target: Target,
        before: Mapping[Target, Record],
        *,
        at: int,
        output: str,
        why: str = "",
    ) -> Record:
        """Judge a measurement, drain the node or lift its drain, and store the measurement last.

        If a run is killed before it has stored the measurement, the next pod repeats all of this
        with the same result. `why` is the reason for a missing measurement.
        """
        record = self._judge(run, target, at, output, why)
        self._say(f"{'+'.join(target)}: {record.verdict}: {record.text}")
        for name in target:
            seen = [r.verdict for t, r in before.items() if name in t]
            self._act(name, conclude([*seen, record.verdict], self.check.nodes), record)
        self.series.add(self.check.name, record)
        return record

    def _judge(self, run: Run, target: Target, at: int, output: str, why: str) -> Record:
        name, rule = self.check.name, self.wanted.rule(self.check, target[0])
        value: float | None = None
        verdict, text = Verdict.UNKNOWN, why
        if not why:
            try:
                reading = self.check.read(output)
                # A pair has the histories of two nodes. Use the longer one.
                histories = [self.series.values(name, node) for node in target]
                value = reading.value
                verdict, text = judge(value, max(histories, key=len), rule)
                text = f"{text} ({reading.note})" if reading.note else text
            except NoValueError as error:
                text = str(error)
        return Record(at, run.id, target, value, self.check.unit, verdict, text)

    def _act(self, name: str, verdict: Verdict, record: Record) -> None:
        if verdict not in (Verdict.BAD, Verdict.GOOD):
            return
        try:
            node = self._client.node(name)
        except SlurmError as error:
            if INVALID_NODE_NAME not in error.numbers:
                raise
            self._say(
                f"node {name}: not changed, because Slurm no longer has this node; no action needed"
            )
            return
        move = decide(node, self.check.name, verdict, record.at)
        if move == "drain":
            self._client.drain(name, drain_reason(self.check.name, record.text))
            self._say(f"node {name}: drained")
        elif move == "lift":
            self._client.resume(name)
            self._say(f"node {name}: back in service")
        elif move == "leave":
            self._say(f"node {name}: stays out of service, with the reason '{node.reason}'")

    def _summary(self, moves: Sequence[Move], results: Mapping[Target, Record]) -> Summary:
        left = {"+".join(move.target): move.why for move in moves}
        for names, why in left.items():
            self._say(f"{names}: not measured, because {why}")
        verdicts = {
            node: [r.verdict for t, r in results.items() if node in t]
            for node in {node for target in results for node in target}
        }
        found = {node: conclude(seen, self.check.nodes) for node, seen in verdicts.items()}
        for target, record in sorted(results.items()):
            if record.verdict is Verdict.BAD and {found[n] for n in target} == {Verdict.UNKNOWN}:
                names = " and ".join(target)
                self._say(
                    f"{names}: the pair is bad, but it is unknown which node is faulty, so "
                    "neither node is drained; measure each node with another partner"
                )
        bad = tuple(sorted(node for node, verdict in found.items() if verdict is Verdict.BAD))
        return Summary(tuple(results.values()), left, bad)

    # --- Files of a run ---------------------------------------------------------------------------

    def _submitted(self, run: Run, target: Target, submission: Submission | None) -> Run:
        others = {t: s for t, s in run.submissions.items() if t != target}
        run = replace(run, submissions={**others, **({target: submission} if submission else {})})
        self._save(run)
        return run

    def _save(self, run: Run) -> None:
        fields = asdict(run)
        fields["submissions"] = [
            {"target": target, **asdict(made)} for target, made in run.submissions.items()
        ]
        files.replace(self._file, json.dumps(fields))

    def _load(self) -> Run | None:
        """Return the unfinished run or None. Raises `ValueError` if the run's file is invalid."""
        try:
            fields = json.loads(self._file.read_text())
            made = {tuple(s.pop("target")): Submission(**s) for s in fields.pop("submissions")}
            fields["targets"] = tuple(map(tuple, fields["targets"]))
            return Run(**fields, submissions=made)
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._file}: is not a valid record of a run ({error}); move this file away "
                "to start a new run"
            ) from None

    def _output(self, run: Run, target: Target, submission: Submission) -> str:
        path = self._outputs / self._file_name(run, target, submission)
        try:
            return path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _file_name(self, run: Run, target: Target, submission: Submission) -> str:
        return f"{self.check.name}-{run.id}-{'+'.join(target)}-{submission.at}.out"


def _mark(run: Run, target: Target, submission: Submission) -> str:
    """Return a job's comment, which identifies the job."""
    return f"{run.id} {'+'.join(target)} {submission.at}"


def _began(job: Job | None, submission: Submission) -> int:
    return int(job.start_time.timestamp()) if job and job.start_time else submission.at
