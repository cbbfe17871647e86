"""Fake Slurm cluster for tests of long checks.

The class `World` has Slurm's nodes and jobs, an API like that of slurmrestd, and a clock. It can
also kill the pod of the long checks at any step.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from agents.longchecks import series as files
from agents.longchecks.registry import CHECKS, END
from agents.longchecks.run import Runner, Summary
from agents.longchecks.series import Series, Target
from agents.longchecks.wanted import Wanted
from agents.slurm import Client

LOGS = "/var/log/slurmstack-checks"
START = 1_800_000_000
USER = "slurmstack-checks"


class Killed(BaseException):
    """The test has killed the pod of the long checks."""


@dataclass
class FakeNode:
    state: set[str] = field(default_factory=lambda: {"IDLE", "DYNAMIC_NORM"})
    reason: str = ""
    reason_time: int = 0
    user_until: int = 0
    """Unix time until which a user's job occupies the node."""
    extra: str = ""


@dataclass
class FakeJob:
    id: int
    target: Target
    comment: str
    output: str
    user: str
    environment: list[str]
    reservation: str | None
    state: str = "PENDING"
    started: int = 0
    ended: int = 0


class World:
    """Fake Slurm with its nodes and jobs, and a clock.

    `measure` returns the output of a check's job. Its argument is the target: the names of the
    nodes on which the job runs.
    """

    def __init__(self, folder: Path, measure: Callable[[Target], str], *names: str) -> None:
        self.nodes = {name: FakeNode() for name in names}
        self.jobs: dict[int, FakeJob] = {}
        self.now = START
        self.duration = 60
        self.preempted: set[int] = set()
        """IDs of jobs that a user's job stops (preempts) as soon as they run."""
        self.forgets_after = 1800
        self.measure = measure
        self.series = folder / "series"
        self.outputs = folder / "outputs"
        self.outputs.mkdir(parents=True)
        self.requests: list[str] = []
        self.steps_to_live: int | None = None
        """Number of steps until the pod is killed, or None for no kill.

        A step is a moment before or after a request to Slurm, or before or after a write to a file.
        """
        self.lines: list[str] = []
        self._clients: dict[str, Client] = {}

    # --- Time -------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds)
        self.tick()

    def tick(self) -> None:
        for job in self.jobs.values():
            if job.state == "RUNNING" and job.id in self.preempted:
                self._end(job, "PREEMPTED")
                for name in job.target:
                    self.nodes[name].user_until = self.now + 120
            elif job.state == "RUNNING" and self.now >= job.started + self.duration:
                text = self.measure(job.target)
                (self.outputs / Path(job.output).name).write_text(f"{text}\n{END} 0\n")
                self._end(job, "COMPLETED")
        for job in self.jobs.values():
            if job.state == "PENDING" and all(map(self._is_free, job.target)):
                job.state, job.started = "RUNNING", self.now

    def _end(self, job: FakeJob, state: str) -> None:
        job.state, job.ended = state, self.now

    def _is_free(self, name: str) -> bool:
        node = self.nodes[name]
        busy = any(j.state == "RUNNING" and name in j.target for j in self.jobs.values())
        return not busy and self.now >= node.user_until and node.state == {"IDLE", "DYNAMIC_NORM"}

    # --- Kills ------------------------------------------------------------------------------------

    def step(self) -> None:
        if self.steps_to_live is not None:
            self.steps_to_live -= 1
            if self.steps_to_live < 0:
                raise Killed

    # --- slurmrestd -------------------------------------------------------------------------------

    def client(self, user: str) -> Client:
        if user not in self._clients:
            transport = httpx.MockTransport(lambda request: self._answer(user, request))
            self._clients[user] = Client(
                "http://rest", lambda: user, transport=transport, sleep=self.sleep
            )
        return self._clients[user]

    def _answer(self, user: str, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/slurm/v0.0.42/")
        if path == "ping/":
            return _ok()
        self.step()
        self.requests.append(f"{request.method} {path}")
        answer = self._serve(user, request.method, path, json.loads(request.content or b"{}"))
        self.step()
        return answer

    def _serve(self, user: str, method: str, path: str, body: Any) -> httpx.Response:
        kind, _, name = path.partition("/")
        if kind == "nodes":
            return _ok(nodes=[self._node(name) for name in self.nodes])
        if kind == "node":
            if name not in self.nodes:
                return _error(2018, "Invalid node name specified")
            if method == "POST":
                self._update(name, body)
            return _ok(nodes=[self._node(name)])
        if path == "job/submit":
            return self._submit(user, body["job"])
        if kind == "jobs":
            return _ok(jobs=[self._job(job) for job in self.jobs.values() if self._is_known(job)])
        job = self.jobs.get(int(name))
        if job is None or not self._is_known(job):
            return _error(2017, "Invalid job id specified")
        if method == "DELETE":
            if job.state in ("PENDING", "RUNNING"):
                self._end(job, "CANCELLED")
            return _ok()
        return _ok(jobs=[self._job(job)])

    def _is_known(self, job: FakeJob) -> bool:
        return not job.ended or self.now < job.ended + self.forgets_after

    def _submit(self, user: str, asked: dict[str, Any]) -> httpx.Response:
        if user != USER:
            return _error(2045, "Invalid account or account/partition combination specified")
        job = FakeJob(
            len(self.jobs) + 1,
            tuple(asked["required_nodes"]),
            asked["comment"],
            asked["standard_output"],
            user,
            asked["environment"],
            asked.get("reservation"),
        )
        self.jobs[job.id] = job
        return _ok(job_id=job.id)

    def _update(self, name: str, body: dict[str, Any]) -> None:
        node = self.nodes[name]
        if body["state"] == ["DRAIN"]:
            node.state |= {"DRAIN"}
            node.reason, node.reason_time = body["reason"], self.now
        else:
            assert body["state"] == ["RESUME"]
            node.state -= {"DRAIN"}
            node.reason = ""

    def _node(self, name: str) -> dict[str, Any]:
        node = self.nodes[name]
        running = any(j.state == "RUNNING" and name in j.target for j in self.jobs.values())
        busy = running or self.now < node.user_until
        state = (node.state - {"IDLE"}) | {"ALLOCATED"} if busy else node.state
        return {
            "name": name,
            "state": sorted(state),
            "reason": node.reason,
            "reason_changed_at": _number(node.reason_time),
            "reason_set_by_user": "slurm",
            "slurmd_start_time": _number(1),
            "cpus": 8,
            "alloc_cpus": 8 if busy else 0,
            "real_memory": 64_000,
            "alloc_memory": 0,
            "gres": "",
            "gres_used": "",
            "features": [],
            "partitions": [],
            "comment": "",
            "extra": node.extra,
            "instance_id": "",
            "last_busy": {"set": False, "infinite": False, "number": 0},
        }

    def _job(self, job: FakeJob) -> dict[str, Any]:
        unset = {"set": False, "infinite": False, "number": 0}
        return {
            "job_id": job.id,
            "array_job_id": unset,
            "array_task_id": unset,
            "array_task_string": "",
            "name": "longcheck",
            "user_name": job.user,
            "user_id": 64034,
            "account": "",
            "partition": "slurmstack-checks",
            "job_state": [job.state],
            "state_reason": "Resources",
            "nodes": ",".join(job.target) if job.started else "",
            "submit_time": _number(START),
            "start_time": _number(job.started),
            "end_time": _number(job.ended),
            "cpus": unset,
            "memory_per_node": unset,
            "memory_per_cpu": unset,
            "tres_req_str": "",
            "tres_alloc_str": "",
            "exit_code": {"return_code": unset, "signal": {"id": unset}},
            "restart_cnt": 0,
            "comment": job.comment,
        }

    # --- The agent --------------------------------------------------------------------------------

    def wanted(self, **changes: Any) -> Wanted:
        chosen = {"nodesets": ["cpu"], "fall": 0.15, "history": 20, "least": 5}
        fields = {
            "partition": "slurmstack-checks",
            "user": USER,
            "logs": LOGS,
            "at_once": 1,
            "wait": 600,
            "keep": 30,
            "nodesets": {"cpu": {"replicas": len(self.nodes)}, "other": {"replicas": 1}},
            "checks": {
                "cpu-memory": {**chosen, "threshold": 1000},
                "network": {**chosen, "threshold": 1},
            },
        }
        return Wanted.model_validate({**fields, **changes})

    def runner(self, check: str, **changes: Any) -> Runner:
        return Runner(
            CHECKS[check],
            self.wanted(**changes),
            self.client("slurm"),
            self.client(USER),
            Series(self.series, 30),
            self.outputs,
            clock=lambda: self.now,
            sleep=self.sleep,
            say=self.lines.append,
        )

    def run(self, check: str = "cpu-memory", nodes: Sequence[str] = (), **changes: Any) -> Summary:
        return self.runner(check, **changes).run(nodes)

    def values(self, check: str = "cpu-memory") -> dict[str, list[float | None]]:
        """Return the values of the series by node."""
        series = Series(self.series, 30)
        return {name: [r.value for r in series.of(check, name)] for name in series.nodes(check)}

    def killing_writes(self) -> Callable[[Path, str], None]:
        """Return a stand-in for `files.replace` that may kill the pod before or after a write."""
        write = files.replace

        def replace(path: Path, text: str) -> None:
            self.step()
            write(path, text)
            self.step()

        return replace


def triad(value: float) -> str:
    return f"threads 2\narray 210 MB\ncopy {value:.0f} MB/s\ntriad {value:.0f} MB/s"


def iperf(gbits: float) -> str:
    return json.dumps({"end": {"sum_received": {"bits_per_second": gbits * 1e9}}})


def _number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def _ok(**fields: Any) -> httpx.Response:
    return httpx.Response(200, json={"errors": [], "warnings": [], **fields})


def _error(number: int, text: str) -> httpx.Response:
    error = {"error": text, "error_number": number, "description": "", "source": ""}
    return httpx.Response(500, json={"errors": [error], "warnings": []})
