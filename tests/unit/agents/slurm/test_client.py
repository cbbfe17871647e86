"""The Slurm client repeats only safe requests, and never reports an error as an empty list."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pydantic import Field

from agents.slurm import Client, Fault, JobRequest, SlurmError
from agents.slurm.models import Record

JOB = JobRequest(name="check", script="#!/bin/sh\n", directory="/tmp")
NO_NODES: dict[str, Any] = {"nodes": [], "errors": [], "warnings": []}
DONE: dict[str, Any] = {"errors": [], "warnings": []}

Reply = httpx.Response | Exception


class Found(Record):
    id: int = Field(validation_alias="job_id")
    comment: str


def ok(answer: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json=answer)


def failed(status: int, number: int, text: str) -> httpx.Response:
    errors = [{"error": text, "error_number": number, "description": "Failure", "source": "x"}]
    return httpx.Response(status, json={"jobs": [], "errors": errors, "warnings": []})


NO_CONTROLLER = (502, 1800, "Unable to contact slurm controller (connect failure)")
LOST: tuple[Callable[[], Exception], ...] = (
    lambda: httpx.ReadTimeout("timed out"),
    lambda: httpx.RemoteProtocolError("Server disconnected"),
    lambda: httpx.WriteError("broken pipe"),
)


class Rest:
    """Fake slurmrestd that returns the given replies in order."""

    def __init__(self, *replies: Reply, seconds: float = 0) -> None:
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        self._replies: Iterator[Reply] = iter(replies)
        self._seconds = seconds
        self._now = 0.0

    def client(self) -> Client:
        transport = httpx.MockTransport(self._answer)
        return Client(
            "http://rest:6820",
            lambda: "t.o.k",
            transport=transport,
            sleep=self.pauses.append,
            clock=lambda: self._now,
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self._now += self._seconds
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.path}" for request in self.requests]


# --- Version and tokens ---------------------------------------------------------------------------


def test_slurmrestd_without_the_api_version_is_an_error() -> None:
    reply = httpx.Response(404, text="Unable find requested URL.")

    with pytest.raises(SlurmError, match="HTTP 404 Unable find requested URL") as error:
        Rest(reply).client().nodes()
    assert error.value.fault is Fault.UNEXPECTED


def test_every_request_contains_the_token() -> None:
    rest = Rest(ok(NO_NODES))
    rest.client().nodes()
    assert rest.requests[0].headers["X-SLURM-USER-TOKEN"] == "t.o.k"


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(401, text="Authentication failure"),
        failed(511, 1007, "Protocol authentication error"),
        failed(500, 1007, "Protocol authentication error"),
    ],
)
def test_error_about_a_refused_token_does_not_quote_it(reply: httpx.Response) -> None:
    rest = Rest(reply)
    with pytest.raises(SlurmError, match=r"GET nodes/: token refused: .*uthentication") as error:
        rest.client().nodes()
    assert error.value.fault is Fault.REFUSED
    assert "t.o.k" not in str(error.value)


def test_unreadable_key_file_is_a_token_error() -> None:
    def no_token() -> str:
        raise FileNotFoundError(2, "No such file or directory", "/etc/key")

    with pytest.raises(
        SlurmError, match=r"cannot make a token for slurmrestd: .*/etc/key"
    ) as error:
        Client("http://rest", no_token, transport=httpx.MockTransport(lambda _: ok({}))).nodes()
    assert error.value.fault is Fault.REFUSED


# --- Repeated requests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble", [lambda: failed(*NO_CONTROLLER), lambda: httpx.ReadTimeout("timed out")]
)
def test_request_that_fails_slowly_is_repeated_only_once(
    trouble: Callable[[], Reply],
) -> None:
    rest = Rest(trouble(), trouble(), trouble(), ok(NO_NODES), seconds=15)
    with pytest.raises(SlurmError) as error:
        rest.client().nodes()
    assert error.value.fault is Fault.UNREACHABLE
    assert len(rest.asked) == 2


@pytest.mark.parametrize(
    "trouble",
    [*LOST, lambda: httpx.ConnectError("refused"), lambda: failed(*NO_CONTROLLER)],
)
@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda client: client.nodes(), NO_NODES),
        (lambda client: client.drain("cpu-0", "slurmstack:test"), DONE),
        (lambda client: client.annotate("cpu-0", comment="rack 4"), DONE),
    ],
)
def test_safe_requests_are_repeated_at_growing_intervals(
    trouble: Callable[[], Reply], ask: Callable[[Client], object], answer: dict[str, Any]
) -> None:
    rest = Rest(trouble(), trouble(), ok(answer))
    ask(rest.client())
    assert len(rest.requests) == 3
    assert rest.pauses == [1, 2]


@pytest.mark.parametrize("trouble", [*LOST, lambda: failed(*NO_CONTROLLER)])
@pytest.mark.parametrize(
    "ask", [lambda client: client.submit(JOB), lambda client: client.resume("cpu-0")]
)
def test_request_that_may_have_succeeded_is_not_repeated(
    trouble: Callable[[], Reply], ask: Callable[[Client], object]
) -> None:
    rest = Rest(trouble())
    with pytest.raises(SlurmError) as error:
        ask(rest.client())
    assert error.value.fault is Fault.UNREACHABLE
    assert len(rest.requests) == 1


def test_result_of_a_submit_with_a_lost_answer_is_unknown() -> None:
    with pytest.raises(
        SlurmError, match=r"POST job/submit: .*it is unknown whether Slurm carried out the request"
    ):
        Rest(httpx.ReadTimeout("timed out")).client().submit(JOB)


def test_submit_that_was_never_sent_is_repeated() -> None:
    rest = Rest(httpx.ConnectError("refused"), ok({"job_id": 7} | DONE))
    assert rest.client().submit(JOB) == 7


@pytest.mark.parametrize(
    "trouble", [lambda: httpx.ConnectError("refused"), lambda: failed(*NO_CONTROLLER)]
)
@pytest.mark.parametrize("kind", ["nodes", "jobs", "partitions", "reservations", "statistics"])
def test_unreachable_slurm_is_an_error_and_never_an_empty_list(
    trouble: Callable[[], Reply], kind: str
) -> None:
    rest = Rest(*(trouble() for _ in range(10)))
    with pytest.raises(SlurmError, match="unreachable") as error:
        getattr(rest.client(), kind)()
    assert error.value.fault is Fault.UNREACHABLE
    assert len(rest.requests) == 4


# --- Answers of Slurm -----------------------------------------------------------------------------


def test_function_from_begin_nodes_returns_the_nodes_or_raises() -> None:
    assert Rest(ok(NO_NODES)).client().begin_nodes()() == ()

    wait = Rest(httpx.Response(401, text="Authentication failure")).client().begin_nodes()
    with pytest.raises(SlurmError, match="token refused"):
        wait()


def test_error_contains_slurms_message_and_number() -> None:
    rest = Rest(failed(500, 2000, "Invalid partition name specified"))
    with pytest.raises(SlurmError, match="Invalid partition name specified") as error:
        rest.client().submit(JOB)
    assert (error.value.fault, error.value.numbers) == (Fault.SLURM, (2000,))


def test_answer_that_contains_errors_fails_even_with_http_200() -> None:
    with pytest.raises(SlurmError, match="GET node/nope: refused by Slurm"):
        Rest(failed(200, 0, "No error")).client().node("nope")


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(200, text="<html>welcome</html>"),
        httpx.Response(200, json=[]),
        httpx.Response(302, headers={"Location": "/login"}),
        httpx.Response(500, text=""),
    ],
)
def test_answer_of_another_server_is_reported_as_unexpected(reply: httpx.Response) -> None:
    with pytest.raises(SlurmError, match="unexpected answer: ") as error:
        Rest(reply).client().nodes()
    assert error.value.fault is Fault.UNEXPECTED


def test_every_error_is_one_line() -> None:
    with pytest.raises(SlurmError) as error:
        Rest(httpx.Response(500, text="a\n\nb\n")).client().nodes()
    assert "\n" not in str(error.value)


# --- Changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "path", "body"),
    [
        (
            lambda client: client.drain("cpu-0", "slurmstack:test: hot"),
            "/node/cpu-0",
            {"state": ["DRAIN"], "reason": "slurmstack:test: hot"},
        ),
        (lambda client: client.resume("cpu-0"), "/node/cpu-0", {"state": ["RESUME"]}),
        (lambda client: client.annotate("cpu-0", extra=""), "/node/cpu-0", {"extra": ""}),
    ],
)
def test_update_of_a_node_sends_only_the_changed_fields(
    ask: Callable[[Client], object], path: str, body: dict[str, Any]
) -> None:
    rest = Rest(ok(DONE))
    ask(rest.client())
    assert rest.asked == [f"POST /slurm/v0.0.42{path}"]
    assert json.loads(rest.requests[0].content) == body


def test_name_of_a_node_is_escaped_in_the_path() -> None:
    rest = Rest(ok(DONE))
    rest.client().drain("../job/1?x", "slurmstack:test")
    assert rest.requests[0].url.raw_path == b"/slurm/v0.0.42/node/..%2Fjob%2F1%3Fx"


def cancelled(number: int, text: str) -> httpx.Response:
    return ok({"status": [{"error": {"code": number, "string": text}}]} | DONE)


def test_cancelling_an_ended_job_is_not_an_error() -> None:
    rest = Rest(cancelled(2021, "Job/step already completing or completed"))
    rest.client().cancel(4)
    assert rest.asked == ["DELETE /slurm/v0.0.42/job/4"]


def test_cancelling_an_unknown_job_is_an_error() -> None:
    with pytest.raises(SlurmError, match="Invalid job id specified"):
        Rest(failed(404, 2017, "Invalid job id specified")).client().cancel(999)


def test_cancelling_reports_an_error_in_the_status_of_the_job() -> None:
    with pytest.raises(SlurmError, match=r"DELETE job/4: refused by Slurm: .*Access denied"):
        Rest(cancelled(2002, "Access denied")).client().cancel(4)


def test_only_records_with_a_text_are_parsed() -> None:
    broken = {"job_id": "seven", "comment": "another's"}
    rest = Rest(ok({"jobs": [broken, {"job_id": 8, "comment": "ours: 8"}], "errors": []}))

    assert [job.id for job in rest.client().jobs_containing("ours:", Found)] == [8]


def test_error_is_not_an_empty_list_of_records_with_a_text() -> None:
    with pytest.raises(SlurmError, match="Unable to contact"):
        Rest(*[failed(*NO_CONTROLLER)] * 9).client().jobs_containing("ours:", Found)


def test_records_with_a_text_may_contain_bytes_that_are_not_text() -> None:
    content = b'{"jobs": [{"job_id": 8, "comment": "ours: \xff"}], "errors": []}'
    rest = Rest(httpx.Response(200, content=content))

    assert [job.id for job in rest.client().jobs_containing("ours:", Found)] == [8]
