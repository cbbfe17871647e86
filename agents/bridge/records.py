"""Read the jobs of the bridge from Slurm.

A list of all jobs can be larger than 50 MB. So the bridge reads the list only at its start, and
when it does not know whether Slurm has accepted a job. Otherwise, it asks for the states of its own
jobs, and for the records of those whose state has changed. It also reads each record again from
time to time: while the state stays the same, a job may get another reason, or lose nodes.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Any, Final

from pydantic import AliasPath, Field

from agents.bridge import jobs
from agents.bridge.observed import Job, Share
from agents.hostlist import expand
from agents.slurm import Client, JobRequest, SlurmError
from agents.slurm.client import INVALID_JOB_ID
from agents.slurm.dataparser import Flags, Time
from agents.slurm.models import Record

AGAIN: Final = 60.0
"""Seconds until a job is read again although its state has not changed."""
REASON: Final = 2.0
"""Seconds until a new job is read again, until Slurm has a reason why it waits."""
PERIOD: Final = 1.0
"""Least number of seconds between two times at which jobs are read again."""
_AT_ONCE: Final = 10
"""Largest number of jobs that are read again at one time."""
_STATES: Final = 500
"""Largest number of jobs whose states are asked for in one request."""
_GPUS: Final = re.compile(r"gpu(?::[^:(,]+)?:(\d+)\(")


class _Node(Record):
    name: str
    cpus: int = Field(validation_alias=AliasPath("cpus", "count"))
    memory: int = Field(validation_alias=AliasPath("memory", "allocated"))


class _Record(Record):
    id: int = Field(validation_alias="job_id")
    state: Flags = Field(validation_alias="job_state")
    reason: str = Field(validation_alias="state_reason")
    started: Time = Field(validation_alias="start_time")
    admin_comment: str
    excluded: str = Field(validation_alias="excluded_nodes")
    resources: Mapping[str, Any] | None = Field(validation_alias="job_resources")
    gres: tuple[str, ...] = Field(validation_alias="gres_detail")


class Records:
    """The bridge's jobs. All methods raise `SlurmError`.

    Only `current` may be called from other threads.
    """

    def __init__(self, slurm: Client) -> None:
        self._slurm = slurm
        self._jobs: dict[int, Job] = {}
        self._is_listed = False
        self._due: dict[int, float] = {}
        """When to read a job again, on the clock of `jobs`."""
        self._now = 0.0
        self._reread = 0.0
        """When jobs were last read again."""

    def jobs(self, now: float) -> dict[int, Job]:
        """Return all jobs of the bridge. `now` is a time of a monotonic clock in seconds."""
        self._now = now
        if self._is_listed:
            self._refresh()
            self._read_again()
        else:
            found = map(_job, self._slurm.jobs_containing(jobs.PREFIX, _Record))
            self._jobs = {job.id: job for job in found if job}
            self._due = dict.fromkeys(self._jobs, now + AGAIN)
            self._is_listed = True
        return dict(self._jobs)

    def start_over(self) -> None:
        """Let the next call of `jobs` list all jobs."""
        self._is_listed = False

    def submit(self, request: JobRequest) -> int:
        """Submit a job, which the next call of `jobs` returns."""
        try:
            number = self._slurm.submit(request)
        except SlurmError:
            # The job may exist, so search for it.
            self.start_over()
            raise
        # Do not read the job: it is as submitted, and `jobs` reads it when it changes.
        job = _of(number, request.admin_comment or "", frozenset({"PENDING"}))
        if job:
            self._jobs[number] = replace(job, excluded=frozenset(request.excluded_nodes))
            self._due[number] = self._now + REASON
        return number

    def exclude(self, number: int, nodes: frozenset[str]) -> None:
        """Change the nodes that a pending job must not use."""
        self._slurm.exclude(number, nodes)
        # The state of the job stays the same, so `jobs` would not read the job again.
        self._read(number)

    def current(self, number: int) -> Job | None:
        """Return the present state of a job, or None if Slurm has no job of the bridge with this
        number."""
        try:
            return _job(self._slurm.job_as(number, _Record))
        except SlurmError as error:
            if INVALID_JOB_ID not in error.numbers:
                raise
            return None

    def _refresh(self) -> None:
        live = self._live()
        states: dict[int, frozenset[str]] = {}
        for begin in range(0, len(live), _STATES):
            states |= self._slurm.job_states(live[begin : begin + _STATES])
        for number in live:
            if number not in states:
                self._forget(number)
            elif states[number] != self._jobs[number].state:
                self._read(number)

    def _read_again(self) -> None:
        """Read some of the jobs that were last read long ago."""
        if self._now - self._reread < PERIOD:
            return
        self._reread = self._now
        for number in nsmallest(_AT_ONCE, self._live(), key=self._due.__getitem__):
            if self._due[number] <= self._now:
                self._read(number)

    def _live(self) -> list[int]:
        """Return the jobs that Slurm has not ended."""
        return [number for number, job in self._jobs.items() if not job.has_ended]

    def _read(self, number: int) -> None:
        job = self.current(number)
        if job:
            self._jobs[number] = job
            is_new = job.waits and not job.has_reason
            self._due[number] = self._now + (REASON if is_new else AGAIN)
        else:
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._jobs.pop(number, None)
        self._due.pop(number, None)


def _job(record: _Record) -> Job | None:
    """Return a job of the bridge, or None for another job."""
    job = _of(record.id, record.admin_comment, record.state)
    if job is None:
        return None
    return replace(
        job,
        reason=record.reason,
        started=record.started.timestamp() if record.started else 0.0,
        shares=_shares(record),
        excluded=frozenset(expand(record.excluded)) if record.excluded else frozenset(),
    )


def _of(number: int, comment: str, state: frozenset[str]) -> Job | None:
    """Return a job with this administrator's comment, or None if it is not the bridge's."""
    stored = jobs.read_comment(comment)
    if stored is None:
        return None
    return Job(number, str(stored["gang"]), int(stored["pods"]), state)


def _shares(record: _Record) -> dict[str, Share]:
    allocation = ((record.resources or {}).get("nodes") or {}).get("allocation") or ()
    found = [_Node.model_validate(one) for one in allocation]
    gpus = [sum(map(int, _GPUS.findall(text))) for text in record.gres]
    return {
        node.name: Share(node.cpus, node.memory, gpus[n] if n < len(gpus) else 0)
        for n, node in enumerate(found)
    }
