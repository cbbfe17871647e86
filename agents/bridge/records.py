"""Read the jobs of the bridge from Slurm.

A list of all jobs can be larger than 10 MB. So the bridge reads the list only at its start and
every minute. Otherwise, it asks for the states of its own jobs, and for the records of those whose
state has changed.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import AliasPath, Field

from agents.bridge import jobs
from agents.bridge.observed import Job, Share
from agents.hostlist import expand
from agents.slurm import Client, JobRequest, SlurmError
from agents.slurm.client import INVALID_JOB_ID
from agents.slurm.dataparser import Flags, Time
from agents.slurm.models import Record

RELIST: Final = 60.0
"""Seconds between two lists of all jobs."""
REASON: Final = 2.0
"""Seconds until a waiting job without a reason is read again. When Slurm gives it a reason, its
state stays the same."""
_READ_AGAIN: Final = 20
"""Largest number of such jobs that are read at once."""
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
        self._listed: float | None = None
        self._unexplained: dict[int, float] = {}
        """When to read a waiting job without a reason again, on the clock of `jobs`."""

    def jobs(self, now: float) -> dict[int, Job]:
        """Return all jobs of the bridge. `now` is a time of a monotonic clock in seconds."""
        if self._listed is None or now - self._listed > RELIST:
            found = map(_job, self._slurm.jobs_as(_Record))
            self._jobs = {job.id: job for job in found if job}
            self._listed = now
        else:
            self._refresh()
            self._explain(now)
        return dict(self._jobs)

    def start_over(self) -> None:
        """Let the next call of `jobs` list all jobs."""
        self._listed = None

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
        live = [job.id for job in self._jobs.values() if not job.has_ended]
        states: dict[int, frozenset[str]] = {}
        for begin in range(0, len(live), _STATES):
            states |= self._slurm.job_states(live[begin : begin + _STATES])
        for number in live:
            if number not in states:
                del self._jobs[number]
            elif states[number] != self._jobs[number].state:
                self._read(number)

    def _explain(self, now: float) -> None:
        """Read some of the waiting jobs that had no reason a moment ago."""
        silent = [job.id for job in self._jobs.values() if job.waits and not job.has_reason]
        self._unexplained = {one: self._unexplained.get(one, now + REASON) for one in silent}
        due = [number for number, when in self._unexplained.items() if when <= now]
        for number in due[:_READ_AGAIN]:
            self._read(number)
            self._unexplained[number] = now + REASON

    def _read(self, number: int) -> None:
        job = self.current(number)
        if job:
            self._jobs[number] = job
        else:
            self._jobs.pop(number, None)


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
