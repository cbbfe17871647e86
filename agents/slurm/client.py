"""Client of slurmrestd. A request without an answer raises an error.

The client repeats queries, and updates that have no effect the second time. It repeats any other
request only if slurmrestd certainly has not received that request.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from agents.slurm import dataparser
from agents.slurm.dataparser import VERSION, Answer
from agents.slurm.errors import Fault, SlurmError
from agents.slurm.models import (
    Job,
    JobRequest,
    JobState,
    Node,
    Partition,
    Ping,
    Record,
    Reservation,
    Statistics,
)
from agents.slurm.tokens import Token

TIMEOUT = httpx.Timeout(90, connect=5)
"""Time limits in seconds. An answer may take long, because slurmrestd itself tries to reach
slurmctld for up to 40 s."""
ATTEMPTS = 4
PAUSE = 1.0
"""Seconds before the second attempt. The pause doubles for each further attempt."""
PATIENCE = 20.0
"""If a request fails after more than this number of seconds, the client does not repeat the
request: slurmrestd has already repeated its own call to slurmctld."""

AUTHENTICATION_ERROR = 1007
"""SLURM_PROTOCOL_AUTHENTICATION_ERROR of slurm_errno.h."""
INVALID_JOB_ID = 2017
"""ESLURM_INVALID_JOB_ID of slurm_errno.h: Slurm does not know the job."""
ALREADY_DONE = 2021
"""ESLURM_ALREADY_DONE of slurm_errno.h."""

NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

T = TypeVar("T")
R = TypeVar("R", bound=Record)
_SHOWN = 60
"""Maximum number of characters of a value that an error message quotes."""


class _Jobs(msgspec.Struct, gc=False):
    """A list of jobs, without their contents."""

    jobs: list[msgspec.Raw] = []
    errors: list[Any] = []


class Client:
    """Client of the slurmrestd at `url`, as the user of `token`. All methods raise SlurmError.

    `transport`, `sleep` and `clock` are for tests.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # trust_env=False: pods of a cluster use no proxy between them.
        self._http = httpx.Client(
            base_url=url, timeout=TIMEOUT, transport=transport, trust_env=False
        )
        self._token = token
        self._sleep = sleep
        self._clock = clock

    def close(self) -> None:
        self._http.close()

    # --- Queries ----------------------------------------------------------------------------------

    def ping(self) -> tuple[Ping, ...]:
        """Return the state of each slurmctld. A slurmctld that refuses the token also has the state
        DOWN."""
        return self._read("ping/", "pings", tuple[Ping, ...])

    def nodes(self) -> tuple[Node, ...]:
        return self._read("nodes/", "nodes", tuple[Node, ...])

    def begin_nodes(self) -> Callable[[], tuple[Node, ...]]:
        """Request all nodes, and return a function that waits for the answer.

        slurmrestd takes a second to answer for 5,000 nodes, so the caller can do other work
        meanwhile. Send no other request before the function returns.
        """
        pool = ThreadPoolExecutor(1)
        request = pool.submit(self.nodes)
        pool.shutdown(wait=False)
        return request.result

    def node(self, name: str) -> Node:
        return self._one(f"node/{quote(name, safe='')}", "nodes", tuple[Node, ...])

    def jobs(self) -> tuple[Job, ...]:
        """Return all jobs in slurmctld, which keeps ended jobs for `MinJobAge` seconds."""
        return self._read("jobs/", "jobs", tuple[Job, ...])

    def jobs_containing(self, text: str, kind: type[R]) -> tuple[R, ...]:
        """Return the jobs whose records contain a text, with the fields of `kind`.

        A record has about 5 kB, so a list of 10,000 jobs has about 50 MB. This method parses only
        some of its records.
        """
        request, response = "GET jobs/", self._send("GET", "jobs/", None, repeat=True)
        try:
            answer = msgspec.json.decode(response.content, type=_Jobs)
        except msgspec.DecodeError:
            answer = _Jobs(errors=["unreadable"])
        if answer.errors or response.status_code != httpx.codes.OK:
            # Let `_answer` find the error.
            found = self._answer(request, response)
        else:
            records = (bytes(one) for one in answer.jobs)
            found = {"jobs": [_parsed(one) for one in records if text.encode() in one]}
        return self._parse(request, found, "jobs", tuple[kind, ...])  # type: ignore[valid-type]  # callers define the type

    def job_as(self, job_id: int, kind: type[R]) -> R:
        """Return a job that is no array, with the fields of `kind`."""
        return self._one(f"job/{job_id}", "jobs", tuple[kind, ...])  # type: ignore[valid-type]  # callers define the type

    def job_states(self, job_ids: Iterable[int]) -> dict[int, frozenset[str]]:
        """Return the states of these jobs. Jobs that slurmctld no longer knows are missing.

        The answer is small: it contains nothing but the states.
        """
        # Repeat the key: slurmrestd accepts no list with commas.
        asked = "&".join(f"job_id={number}" for number in sorted(job_ids))
        found = self._read(f"jobs/state/?{asked}", "jobs", tuple[JobState, ...])
        return {one.id: one.state for one in found}

    def job(self, job_id: int) -> tuple[Job, ...]:
        """Return the records of one job. A started array has several records."""
        return self._read(f"job/{job_id}", "jobs", tuple[Job, ...])

    def partitions(self) -> tuple[Partition, ...]:
        return self._read("partitions/", "partitions", tuple[Partition, ...])

    def reservations(self) -> tuple[Reservation, ...]:
        return self._read("reservations/", "reservations", tuple[Reservation, ...])

    def statistics(self) -> Statistics:
        return self._read("diag/", "statistics", Statistics)

    # --- Changes ----------------------------------------------------------------------------------

    def drain(self, node: str, reason: str) -> None:
        """Drain a node. The new reason replaces an existing one."""
        self._update(node, {"state": ["DRAIN"], "reason": reason}, repeat=True)

    def resume(self, node: str) -> None:
        """Resume a node. Slurm refuses this request for a node in service.

        The client does not repeat the request, because a new drain may exist by then.
        """
        self._update(node, {"state": ["RESUME"]}, repeat=False)

    def undrain(self, node: str) -> None:
        """Lift the drain of a node. A node that is DOWN stays DOWN."""
        self._update(node, {"state": ["UNDRAIN"]}, repeat=False)

    def down(self, node: str, reason: str) -> None:
        """Set a node to DOWN. Slurm kills its jobs, and requeues jobs that allow a requeue."""
        self._update(node, {"state": ["DOWN"], "reason": reason}, repeat=True)

    def power(self, node: str, *state: str) -> None:
        """Set a node's state of power, such as POWER_UP; see scontrol(1), "update nodename".

        With POWER_DOWN alone, Slurm waits until the node is idle. With both POWER_DOWN and
        POWERED_DOWN, Slurm does not wait, and requeues the node's jobs.
        """
        self._update(node, {"state": list(state)}, repeat=True)

    def annotate(self, node: str, *, comment: str | None = None, extra: str | None = None) -> None:
        """Set a node's comment, its `extra` field, or both. None leaves a field unchanged."""
        fields = {"comment": comment, "extra": extra}
        given = {key: value for key, value in fields.items() if value is not None}
        self._update(node, given, repeat=True)

    def forget(self, node: str) -> None:
        """Delete the record of a dynamic node. Slurm refuses this while the node has jobs."""
        # Do not repeat the request: the node may have registered again.
        self._ask("DELETE", f"node/{quote(node, safe='')}", repeat=False)

    def submit(self, job: JobRequest) -> int:
        """Submit a batch job as the token's user, and return its id.

        If the answer is lost, the error says that the job may exist. Search for the job's name
        before you submit it again.
        """
        answer = self._ask("POST", "job/submit", job.body(), repeat=False)
        return self._parse("POST job/submit", answer, "job_id", int)

    def cancel(self, job_id: int) -> None:
        """Cancel a job. Nothing happens if the job has ended."""
        try:
            self._ask("DELETE", f"job/{job_id}", repeat=True)
        except SlurmError as error:
            if error.numbers != (ALREADY_DONE,):
                raise

    def signal(self, job_id: int, signal: str) -> None:
        """Send a signal, such as USR1, to the batch script of a job, but not to its children."""
        query = f"signal={signal}&flags=BATCH_JOB"
        self._ask("DELETE", f"job/{job_id}?{query}", repeat=True)

    def exclude(self, job_id: int, nodes: Iterable[str]) -> None:
        """Set the nodes that a pending job must not use."""
        self._ask("POST", f"job/{job_id}", {"excluded_nodes": sorted(nodes)}, repeat=True)

    # --- Requests ---------------------------------------------------------------------------------

    def _read(self, path: str, key: str, kind: type[T]) -> T:
        return self._parse(f"GET {path}", self._ask("GET", path, repeat=True), key, kind)

    def _one(self, path: str, key: str, kind: type[tuple[T, ...]]) -> T:
        found = self._read(path, key, kind)
        if len(found) != 1:
            raise SlurmError(
                Fault.UNEXPECTED,
                f"GET {path}",
                f"the answer has {len(found)} records, expected one",
            )
        return found[0]

    def _update(self, node: str, fields: Answer, *, repeat: bool) -> None:
        self._ask("POST", f"node/{quote(node, safe='')}", fields, repeat=repeat)

    def _parse(self, request: str, answer: Answer, key: str, kind: type[T]) -> T:
        try:
            return TypeAdapter(kind).validate_python(answer[key])
        except KeyError as error:
            raise SlurmError(
                Fault.UNEXPECTED, request, f"the answer of slurmrestd has no {error}"
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, (key, *first["loc"])))
            shown = repr(first["input"])
            shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
            raise SlurmError(
                Fault.UNEXPECTED, request, f"{where}: {shown}: {first['msg']}"
            ) from error

    def _ask(self, method: str, path: str, body: Answer | None = None, *, repeat: bool) -> Answer:
        return self._answer(f"{method} {path}", self._send(method, path, body, repeat))

    def _send(self, method: str, path: str, body: Answer | None, repeat: bool) -> httpx.Response:
        """Return the response. Repeats the request at growing intervals if this is safe."""
        end = self._clock() + PATIENCE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = self._http.request(
                    method,
                    f"/slurm/{VERSION}/{path}",
                    json=body,
                    headers={"X-SLURM-USER-TOKEN": self._token()},
                )
            except httpx.TransportError as error:
                never_sent = isinstance(error, NEVER_SENT)
                if self._is_last(attempt, end) or not (repeat or never_sent):
                    raise _unreachable(f"{method} {path}", error, never_sent or repeat) from error
            except OSError as error:
                raise SlurmError(
                    Fault.REFUSED,
                    f"{method} {path}",
                    f"cannot make a token for slurmrestd: {error}",
                ) from error
            else:
                if not repeat or not _is_passing(response) or self._is_last(attempt, end):
                    return response
            self._sleep(PAUSE * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")

    def _is_last(self, attempt: int, end: float) -> bool:
        return attempt == ATTEMPTS or self._clock() >= end

    def _answer(self, request: str, response: httpx.Response) -> Answer:
        """Return the content of a response. Raises SlurmError if the content is an error."""
        try:
            content = _parsed(response.content)
        except ValueError:
            content = None
        answer: Answer = content if isinstance(content, dict) else {}
        text, numbers = dataparser.said(answer)
        said = f"HTTP {response.status_code} {text or ('' if answer else response.text[:200])}"
        if (
            response.status_code
            in (httpx.codes.UNAUTHORIZED, httpx.codes.NETWORK_AUTHENTICATION_REQUIRED)
            or AUTHENTICATION_ERROR in numbers
        ):
            raise SlurmError(Fault.REFUSED, request, said, numbers)
        if _is_passing(response):
            raise SlurmError(Fault.UNREACHABLE, request, said, numbers)
        if text:
            raise SlurmError(Fault.SLURM, request, said, numbers)
        if response.status_code != httpx.codes.OK or not answer:
            raise SlurmError(Fault.UNEXPECTED, request, said)
        return answer


def _is_passing(response: httpx.Response) -> bool:
    """Return whether slurmrestd did not reach slurmctld, or a proxy did not reach slurmrestd."""
    return response.status_code in (
        httpx.codes.BAD_GATEWAY,
        httpx.codes.SERVICE_UNAVAILABLE,
        httpx.codes.GATEWAY_TIMEOUT,
    )


def _unreachable(request: str, error: httpx.TransportError, fate_known: bool) -> SlurmError:
    said = str(error) or type(error).__name__
    if not fate_known:
        said += " (it is unknown whether Slurm carried out the request)"
    return SlurmError(Fault.UNREACHABLE, request, said)


def _parsed(content: bytes) -> Any:
    """Parse JSON. Raises ValueError.

    Root on a worker can put bytes that are not UTF-8 into a node's record, and slurmrestd returns
    these bytes. One such record must not make the answer about all nodes unreadable.
    """
    try:
        return from_json(content)
    except ValueError:
        return from_json(content.decode(errors="replace"))
