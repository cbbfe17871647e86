"""An edit of accounts changes what users may do and see, but does not affect running jobs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

LONG = "sbatch --parsable --output=/dev/null --wrap 'sleep 900'"
USERS = "sacct -X -n -P -S now-1hour --allusers --format=User"


def stricter(values: dict[str, Any]) -> None:
    """Limit one user to three jobs, enable fair share, and show users only their own data."""
    physics, biology = values["accounting"]["accounts"]
    physics["users"][0]["max_submit_jobs"] = 3
    physics["fairshare"] = biology["fairshare"] = 1
    slurm = values.setdefault("slurm", {})
    slurm["priority"] = {"type": "multifactor", "fairshare": 100_000}
    slurm["private_data"] = ["jobs", "usage", "users", "accounts"]
    slurm["extra"] = {"slurm.conf": ["PriorityCalcPeriod=1"]}


@dataclass(frozen=True)
class Edited:
    cluster: Cluster
    job: int
    """Id of a job that started before the edit and still runs."""
    before: str
    nodes: dict[str, str]
    """UID of each node's pod before the edit."""


def submit(cluster: Cluster, options: str = "", user: str = "researcher") -> int:
    return int(cluster.run(f"{LONG} {options}", user=user))


def job_line(cluster: Cluster, job: int) -> str:
    return cluster.run(f"squeue -h -j {job} -o '%T %S %N %a'")


def pods(cluster: Cluster) -> dict[str, str]:
    return {name: cluster.pod_uid(name) for name in ("cpu-0", "cpu-1", "login-0")}


@pytest.fixture(scope="module")
def edited(accounts: Cluster) -> Iterator[Edited]:
    """Apply the edit while a job runs; restore the settings afterwards."""
    accounts.run("srun --nodes=2 sleep 5")  # Create recent usage for the researcher.
    job = submit(accounts)
    accounts.wait_for_job(job, "RUNNING")
    before = Edited(accounts, job, job_line(accounts, job), pods(accounts))
    with accounts.edited(stricter):
        accounts.deploy("up")
        yield before
    for user in ("researcher", "student"):
        accounts.run("scancel --me", user=user)
    accounts.deploy("up")


def test_edit_of_accounts_does_not_affect_a_running_job(edited: Edited) -> None:
    assert edited.before.startswith("RUNNING ")
    assert job_line(edited.cluster, edited.job) == edited.before
    assert pods(edited.cluster) == edited.nodes


def test_users_see_only_their_own_jobs_and_usage(edited: Edited) -> None:
    cluster = edited.cluster
    own = submit(cluster, user="student")
    eventually("sacct shows the job", lambda: cluster.run(USERS, user="student"))

    assert set(cluster.run(USERS, user="student").splitlines()) == {"student"}
    assert cluster.run("squeue -h -o %u", user="student") == "student"
    shares = cluster.run("sshare -n -P -a -o user", user="student").split()
    assert "researcher" not in shares
    assert "student" in shares
    cluster.run(f"scancel {own}", user="student")


def test_user_with_less_usage_has_the_higher_priority(edited: Edited) -> None:
    cluster = edited.cluster
    first = submit(cluster, "--nodes=2 --exclusive")
    second = submit(cluster, "--nodes=2 --exclusive", "student")

    def priorities() -> list[int]:
        output = cluster.in_pod(
            cluster.controller(),
            "slurmctld",
            *("squeue", "-h", "-j", f"{first},{second}", "-o", "%Q", "--sort=i"),
        )
        return [int(line) for line in output.split()]

    def student_is_ahead() -> bool:
        of_researcher, of_student = priorities()
        return of_student > of_researcher

    eventually("the student's job has the higher priority", student_is_ahead, timeout=90)
    cluster.run(f"scancel {first}")
    cluster.run(f"scancel {second}", user="student")


def test_job_over_the_submit_limit_is_refused_with_slurms_message(edited: Edited) -> None:
    cluster = edited.cluster
    for _ in range(2):
        submit(cluster, "--hold")

    refused = cluster.ssh(LONG, check=False)

    assert refused.returncode != 0
    assert "AssocMaxSubmitJobLimit" in refused.stderr
    assert "Job violates accounting/QOS policy" in refused.stderr
