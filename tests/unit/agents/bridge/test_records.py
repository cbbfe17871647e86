"""The bridge's jobs, as slurmrestd shows them."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.bridge.jobs import comment
from agents.bridge.observed import Share
from agents.bridge.records import AGAIN, PERIOD, REASON, Records
from agents.slurm import Client, JobRequest, SlurmError

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "slurm" / "data" / "v0.0.42.json").read_text()
)
REQUEST = JobRequest(
    name="lab/a",
    script="#!/bin/sh\n",
    directory="/",
    admin_comment=comment("g", 2),
    excluded_nodes=("cpu-1",),
)


def record(number: int, *state: str, **more: Any) -> dict[str, Any]:
    """Return a record of a running job with one node and two GPUs, from a real slurmrestd."""
    running = next(one for one in RECORDED["jobs"]["jobs"] if one["job_resources"])
    content = {"admin_comment": comment("g", 2), "job_state": list(state or ("RUNNING",)), **more}
    return {**running, "job_id": number, **content}


class Rest:
    """A slurmrestd with these jobs."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.jobs = {one["job_id"]: one for one in jobs}
        self.asked: list[str] = []
        self.is_lost = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.partition("/v0.0.42/")[2]
        self.asked.append(path)
        if request.method == "POST":
            self.jobs[9] = record(9, "PENDING")
            if self.is_lost:
                raise httpx.ReadTimeout("slow")
            return httpx.Response(200, json={"job_id": 9, "errors": []})
        if path == "jobs/":
            return self._answer(*self.jobs.values())
        if path == "jobs/state/":
            asked = map(int, request.url.params.get_list("job_id"))
            return self._answer(
                *(
                    {"job_id": number, "state": self.jobs[number]["job_state"]}
                    for number in asked
                    if number in self.jobs
                )
            )
        number = int(path.removeprefix("job/"))
        if number not in self.jobs:
            unknown = {"error": "Invalid job id specified", "error_number": 2017}
            return httpx.Response(200, json={"jobs": [], "errors": [unknown]})
        return self._answer(self.jobs[number])

    def _answer(self, *jobs: dict[str, Any]) -> httpx.Response:
        return httpx.Response(200, json={"jobs": list(jobs), "errors": []})


def records(rest: Rest) -> Records:
    transport = httpx.MockTransport(rest)
    return Records(Client("http://rest", lambda: "t", transport=transport, sleep=lambda _: None))


def test_share_of_each_node_is_read_from_slurms_record() -> None:
    (job,) = records(Rest(record(7))).jobs(0).values()

    assert (job.gang, job.pods, job.runs) == ("g", 2, True)
    assert job.shares == {"sim-0": Share(cpus=1, memory=500, gpus=2)}
    assert job.started > 0


def test_jobs_of_users_are_not_the_bridges() -> None:
    assert records(Rest(record(7, admin_comment="x"), record(8))).jobs(0).keys() == {8}


def test_only_states_are_read_until_the_next_list() -> None:
    rest = Rest(record(7), record(8, "PENDING"))
    made = records(rest)
    made.jobs(0)
    rest.asked.clear()

    assert made.jobs(1).keys() == {7, 8}
    assert rest.asked == ["jobs/state/"]


def test_record_is_read_again_when_its_state_changes() -> None:
    rest = Rest(record(7, "PENDING"), record(8))
    made = records(rest)
    made.jobs(0)
    rest.jobs[7] = record(7, "RUNNING")
    rest.asked.clear()

    assert made.jobs(1)[7].runs
    assert rest.asked == ["jobs/state/", "job/7"]


def test_job_that_slurm_has_forgotten_is_gone() -> None:
    rest = Rest(record(7), record(8))
    made = records(rest)
    made.jobs(0)
    del rest.jobs[7]
    assert made.jobs(1).keys() == {8}
    assert made.current(7) is None


def test_ended_jobs_are_not_read_again() -> None:
    rest = Rest(record(7, "COMPLETED"))
    made = records(rest)
    made.jobs(0)
    rest.asked.clear()
    assert made.jobs(1).keys() == {7}
    assert rest.asked == []
    made.jobs(AGAIN + 1)
    assert rest.asked == []


def test_submitted_job_is_known_at_once() -> None:
    made = records(Rest())
    made.jobs(0)
    assert made.submit(REQUEST) == 9

    (job,) = made.jobs(0.1).values()
    assert (job.id, job.gang, job.pods, job.waits) == (9, "g", 2, True)
    assert job.excluded == {"cpu-1"}


def test_new_job_is_soon_read_again() -> None:
    """Its state stays the same, but users want to know why their pods wait."""
    rest = Rest()
    made = records(rest)
    made.jobs(0)
    made.submit(REQUEST)
    rest.jobs[9] = record(9, "PENDING", state_reason="None")
    assert not made.jobs(REASON)[9].has_reason
    rest.jobs[9] = record(9, "PENDING", state_reason="Priority")

    assert made.jobs(2 * REASON)[9].reason == "Priority"
    assert made.jobs(3 * REASON)[9].reason == "Priority"
    assert rest.asked.count("job/9") == 2


def test_job_that_has_lost_a_node_is_noticed_later() -> None:
    """`scontrol update` takes a node from a running job without another state."""
    rest = Rest(record(7))
    made = records(rest)
    assert made.jobs(0)[7].shares
    rest.jobs[7] = record(7, job_resources=None)

    assert made.jobs(1)[7].shares
    assert not made.jobs(1 + AGAIN)[7].shares


def test_only_some_jobs_are_read_again_at_a_time() -> None:
    rest = Rest(*(record(number, "PENDING") for number in range(1, 31)))
    made = records(rest)
    made.jobs(0)
    rest.asked.clear()

    for moment in (AGAIN, AGAIN + PERIOD / 2, AGAIN + PERIOD, AGAIN + 2 * PERIOD):
        made.jobs(moment)

    read = [path for path in rest.asked if path.startswith("job/")]
    assert len(read) == len(set(read)) == 30


def test_states_of_many_jobs_are_asked_for_in_parts() -> None:
    """slurmrestd accepts no addresses of any length."""
    rest = Rest(*(record(number, "PENDING") for number in range(1, 1202)))
    made = records(rest)
    made.jobs(0)
    rest.asked.clear()

    assert len(made.jobs(1)) == 1201
    assert rest.asked == ["jobs/state/"] * 3


def test_job_whose_submission_has_no_answer_is_searched_for() -> None:
    rest = Rest()
    made = records(rest)
    made.jobs(0)
    rest.is_lost = True
    with pytest.raises(SlurmError):
        made.submit(REQUEST)
    assert made.jobs(0.1).keys() == {9}
