"""The client reads recorded answers of slurmrestd 24.11.5.

The recordings come from a cluster with two nodes and two jobs. The field `meta` is left out.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.slurm import Client, Fault, JobRequest, SlurmError
from agents.slurm.dataparser import VERSION

DATA = Path(__file__).parent / "data"


def recorded() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((DATA / f"{VERSION}.json").read_text())
    return answers


def client_of(answers: dict[str, Any]) -> Client:
    """Return a client of a slurmrestd that gives these answers."""

    def answer(request: httpx.Request) -> httpx.Response:
        _, _, _, kind, *_ = request.url.path.split("/")
        kind = {"node": "nodes", "job": "jobs"}.get(kind, kind)
        return httpx.Response(200, json=answers[kind])

    return Client("http://rest", lambda: "token", transport=httpx.MockTransport(answer))


@pytest.fixture
def client() -> Client:
    return client_of(recorded())


def test_nodes_are_read(client: Client) -> None:
    busy, drained = client.nodes()

    assert (busy.name, busy.state) == ("sim-0", frozenset({"MIXED", "DYNAMIC_NORM"}))
    assert (busy.cpus, busy.alloc_cpus, busy.memory, busy.alloc_memory) == (4, 1, 2000, 500)
    assert (busy.gres, busy.gres_used) == ("gpu:h100:2", "gpu:h100:2(IDX:0-1)")
    assert (busy.features, busy.partitions) == (("sim", "avx"), ("main", "limited"))
    assert (busy.reason, busy.reason_user, busy.reason_time) == ("", "", None)
    assert busy.started == datetime.fromtimestamp(1795255666, UTC)

    assert drained.state == {"IDLE", "DRAIN", "DYNAMIC_NORM"}
    assert (drained.reason, drained.reason_user) == ("slurmstack:test", "slurm")
    assert drained.reason_time == datetime.fromtimestamp(1795255677, UTC)
    assert drained.comment == "rack 4"


@pytest.mark.parametrize("seconds", [10**15, 2**63 - 1, 2**64])
def test_impossible_start_time_of_one_slurmd_hides_no_node(seconds: int) -> None:
    """slurmctld stores the start time that slurmd reports, even if it is impossible."""
    answers = recorded()
    answers["nodes"]["nodes"][0]["slurmd_start_time"]["number"] = seconds
    busy, drained = client_of(answers).nodes()

    assert busy.started is None
    assert drained.started is not None


def test_running_job_is_read(client: Client) -> None:
    job = client.jobs()[0]

    assert (job.id, job.name, job.state, job.nodes) == (1, "train", frozenset({"RUNNING"}), "sim-0")
    assert (job.uid, job.user, job.account, job.partition) == (2000, "", "physics", "main")
    assert (job.cpus, job.memory_per_node, job.memory_per_cpu) == (1, 500, None)
    assert job.tres_allocated == "cpu=1,mem=500M,node=1,billing=1"
    assert (job.exit_code, job.signal, job.requeues) == (0, None, 0)
    assert (job.array_id, job.array_task, job.comment) == (None, None, "resnet")
    assert job.submit_time == job.start_time == datetime.fromtimestamp(1795255675, UTC)


def test_pending_job_array_is_one_record(client: Client) -> None:
    job = client.jobs()[1]

    assert (job.id, job.array_id, job.array_task, job.array_tasks) == (4, 4, None, "1-5%2")
    assert (job.state, job.reason, job.nodes) == (frozenset({"PENDING"}), "Priority", "")


def test_partitions_are_read(client: Client) -> None:
    main, limited = client.partitions()

    assert (main.name, main.state, main.nodesets, main.nodes) == (
        "main",
        frozenset({"UP"}),
        "sim",
        "sim-[0-1]",
    )
    assert (main.node_count, main.cpus, main.max_time, main.max_nodes) == (2, 8, None, None)
    assert (limited.state, limited.max_time, limited.max_nodes) == (frozenset({"DOWN"}), 60, 1)


def test_reservations_are_read(client: Client) -> None:
    maintenance, course = client.reservations()

    assert (maintenance.name, maintenance.nodes) == ("maint", "sim-1")
    assert maintenance.flags == {"MAINT", "SPEC_NODES"}
    assert maintenance.start_time == datetime(2030, 1, 1, tzinfo=UTC)
    assert (course.users, course.partition, course.tres) == ("researcher", "main", "cpu=4")


def test_statistics_are_read(client: Client) -> None:
    statistics = client.statistics()

    assert statistics.jobs_submitted == 10
    assert statistics.since == datetime.fromtimestamp(1795255665, UTC)
    calls = {calls.name: calls for calls in statistics.calls_by_type}
    assert calls["REQUEST_CONFIG"].count == 2
    assert calls["REQUEST_CONFIG"].average_time == 108
    assert {calls.name for calls in statistics.calls_by_user} >= {"root", "slurm"}


def test_ping_shows_that_slurmctld_is_up(client: Client) -> None:
    (ping,) = client.ping()
    assert (ping.host, ping.mode, ping.up) == ("ctl", "primary", True)


@pytest.mark.parametrize(
    ("kind", "records", "field"),
    [("nodes", "nodes", "real_memory"), ("jobs", "jobs", "job_state"), ("nodes", "nodes", "state")],
)
def test_error_names_a_missing_field(kind: str, records: str, field: str) -> None:
    answers = recorded()
    del answers[kind][records][0][field]
    client = client_of(answers)

    with pytest.raises(SlurmError, match=rf"GET {kind}/: .*{kind}\.0\.{field}") as error:
        getattr(client, kind)()
    assert error.value.fault is Fault.UNEXPECTED


@pytest.mark.parametrize("kind", ["nodes", "jobs", "partitions", "reservations", "statistics"])
def test_answer_without_records_is_an_error(kind: str) -> None:
    path = {"statistics": "diag"}.get(kind, kind)
    client = client_of(recorded() | {path: {"errors": [], "warnings": []}})

    with pytest.raises(SlurmError, match=rf"the answer of slurmrestd has no '{kind}'"):
        getattr(client, kind)()


def test_job_request_omits_fields_that_are_not_set() -> None:
    job = JobRequest(name="check", script="#!/bin/sh\n", directory="/tmp", memory_per_node=100)

    assert job.body() == {
        "job": {
            "name": "check",
            "script": "#!/bin/sh\n",
            "current_working_directory": "/tmp",
            "environment": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "memory_per_node": {"set": True, "infinite": False, "number": 100},
            "hold": False,
        }
    }


@pytest.mark.parametrize("comment", [b"a\xffb", b"\xed\xa0\x80"], ids=["byte", "surrogate"])
def test_node_with_a_comment_that_is_not_utf8_is_shown(comment: bytes) -> None:
    answer = recorded()["nodes"]
    answer["nodes"][0]["comment"] = "COMMENT"
    content = json.dumps(answer).encode().replace(b"COMMENT", comment)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=content))

    found = Client("http://rest", lambda: "token", transport=transport).nodes()

    assert [node.name for node in found] == [node["name"] for node in answer["nodes"]]
