"""sacct shows a job's result two seconds after the job's end."""

import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

FIELDS = ("JobID", "User", "Account", "State", "ExitCode", "NNodes", "AllocTRES", "Start", "End")
WITHIN = 2
"""Seconds between a job's end and the moment when sacct must show the job's result."""
SPAN = 'date +%FT%T >>"$SLURM_JOB_ID.span"'
"""Command that runs before and after each job's script and appends the time to a file."""


@dataclass(frozen=True)
class Job:
    script: str
    state: str
    code: str = "0:0"
    user: str = "researcher"
    options: str = ""
    nodes: int = 1
    elements: int = 1
    meanwhile: str = ""
    """A command that the user runs while the job runs; `$job` is the job's id."""


JOBS = {
    "a job that succeeds": Job("true", "COMPLETED"),
    "a job that fails": Job("exit 7", "FAILED", "7:0"),
    "a job on two nodes": Job("srun true", "COMPLETED", options="--nodes=2", nodes=2),
    "an array job": Job("true", "COMPLETED", options="--array=1-3", elements=3),
    "a job of another user": Job("true", "COMPLETED", user="student"),
    "a cancelled job": Job("sleep 300", "CANCELLED by 2000", "0:0", meanwhile="scancel $job"),
    "a requeued job": Job(
        "[ $SLURM_RESTART_COUNT ] || sleep 300",
        "COMPLETED",
        options="--requeue",
        meanwhile="scontrol requeue $job; "
        'until [ "$(squeue -h -j $job -o %T)" = PENDING ]; do sleep 0.2; done; '
        "sleep 2; scontrol update JobId=$job StartTime=now",
    ),
    "a job at its time limit": Job("sleep 300", "TIMEOUT", options="--time=1"),
}
# The job at its time limit runs for up to 90 seconds, because Slurm checks time limits only twice a
# minute. Slurm would start a requeued job only after two minutes, so the command that requeues the
# job also sets StartTime. Before it sets StartTime, the command sleeps, because slurmd refuses a
# job's credential that is from the same second as the requeue.
WATCH = """
job=$(sbatch --parsable --output=/dev/null {options} --wrap {script})
if [ {meanwhile} ]; then
  until [ "$(squeue -h -j $job -o %T)" = RUNNING ]; do sleep 0.2; done
  eval {meanwhile}
fi
while [ "$(squeue -h -j $job -t PD,CF,R,CG -o %A)" ]; do sleep 0.1; done
sleep {within}
sacct -X -n -P -j $job --format={fields} >{name}.record
"""


def slug(name: str) -> str:
    return name.replace(" ", "-")


@pytest.fixture(scope="module")
def folder(accounts: Cluster) -> Iterator[str]:
    """Start all jobs at the same time. The folder gets the sacct record of each job."""
    path = f"/home/shared-{uuid.uuid4().hex[:8]}"
    accounts.in_pod("login-0", "sshd", "mkdir", "-m", "1777", f"/mnt/jail{path}")
    for name, job in JOBS.items():
        watch = WATCH.format(
            options=job.options,
            script=shlex.quote(f"{SPAN}; {job.script}; code=$?; {SPAN}; exit $code"),
            meanwhile=shlex.quote(job.meanwhile),
            within=WITHIN,
            fields=",".join(FIELDS),
            name=slug(name),
        )
        detached = f"cd {path} && (setsid sh -c {shlex.quote(watch)} >{slug(name)}.log 2>&1 &)"
        accounts.run(detached, user=job.user)
    yield path
    accounts.in_pod("login-0", "sshd", "rm", "-rf", f"/mnt/jail{path}")


@pytest.fixture
def records(accounts: Cluster, folder: str, request: pytest.FixtureRequest) -> list[dict[str, str]]:
    """Return sacct's output for one of the jobs two seconds after the job's end."""
    path = f"{folder}/{slug(request.param)}.record"
    output = eventually(
        f"{request.param} has ended",
        lambda: accounts.run(f"cat {path} 2>/dev/null || true"),
        timeout=240,
    )
    return [dict(zip(FIELDS, line.split("|"), strict=True)) for line in output.splitlines()]


@pytest.mark.parametrize(("records", "job"), JOBS.items(), ids=JOBS, indirect=["records"])
def test_sacct_record_shows_how_the_job_ended(
    accounts: Cluster, folder: str, records: list[dict[str, str]], job: Job
) -> None:
    account = {"researcher": "physics", "student": "biology"}[job.user]
    assert len(records) == job.elements
    for record in records:
        assert record["State"] == job.state, record
        assert record["ExitCode"] == job.code
        assert (record["User"], record["Account"]) == (job.user, account)
        assert record["NNodes"] == str(job.nodes)
        allocated = dict(tres.split("=") for tres in record["AllocTRES"].split(","))
        assert allocated["node"] == allocated["cpu"] == str(job.nodes)
        assert allocated["mem"].endswith("M")
        assert record["Start"] <= record["End"]
