"""slurmdbd, with the images and configuration of a stack, records jobs."""

import re

import pytest

from tests.support.accounting import NODE, Cluster
from tests.support.waiting import eventually

TRES = "billing=2,cpu=2,mem=200M,node=1"
JOBS = [
    # Script, final state and exit code of a job.
    ("true", "COMPLETED", "0:0"),
    ("exit 3", "FAILED", "3:0"),
    ("kill -9 $$", "FAILED", "0:9"),
]


def record(cluster: Cluster, job: str, *fields: str) -> tuple[str, ...]:
    """Return the record of a job with one run; empty until slurmdbd has the record."""
    (found,) = cluster.records(*fields, where=f"-j {job}") or [()]
    return found


@pytest.mark.parametrize(("script", "state", "code"), JOBS)
def test_record_shows_how_a_job_ended(cluster: Cluster, script: str, state: str, code: str) -> None:
    job = cluster.user(
        f"sbatch --parsable -o /dev/null --ntasks=2 --mem-per-cpu=100 --wrap '{script}'"
    )

    ended = ("State", "ExitCode", "AllocTRES", "NodeList", "User")
    expected = (state, code, TRES, NODE, "researcher")
    eventually("the job is on record", lambda: record(cluster, job, *ended) == expected)


def test_record_names_the_user_who_cancelled_a_job(cluster: Cluster) -> None:
    job = cluster.user("sbatch --parsable -o /dev/null --wrap 'sleep 100'")
    eventually("the job runs", lambda: record(cluster, job, "State") == ("RUNNING",))

    cluster.user(f"scancel {job}")

    eventually(
        "the record shows the cancellation",
        lambda: record(cluster, job, "State") == ("CANCELLED by 2000",),
    )


def test_each_array_element_is_recorded(cluster: Cluster) -> None:
    job = cluster.user("sbatch --parsable --array=1-3 -o /dev/null --wrap true")

    def found() -> set[tuple[str, ...]]:
        return set(cluster.records("JobID", "State", where=f"-j {job}"))

    expected = {(f"{job}_{index}", "COMPLETED") for index in (1, 2, 3)}
    eventually("all elements are on record", lambda: found() == expected)


def test_both_runs_of_a_requeued_job_are_recorded(cluster: Cluster) -> None:
    job = cluster.user("sbatch --parsable --requeue -o /dev/null --wrap 'sleep 100'")
    eventually("the job runs", lambda: record(cluster, job, "State") == ("RUNNING",))

    cluster.slurmctld.run(f"scontrol requeue {job}")
    ask = f"--duplicates -j {job}"
    eventually("the job is requeued", lambda: len(cluster.records("State", where=ask)) == 2)
    cluster.user(f"scancel {job}")

    states = {("REQUEUED",), ("CANCELLED by 2000",)}
    eventually("both runs have ended", lambda: set(cluster.records("State", where=ask)) == states)


def test_memory_usage_of_tasks_is_recorded(cluster: Cluster) -> None:
    hog = 'x=$(head -c 80000000 /dev/zero | tr "\\0" a); sleep 3'
    job = cluster.user(f"sbatch --parsable --mem=900 -o /dev/null --wrap '{hog}'")

    def used() -> list[str]:
        output = cluster.slurmctld.run(f"sacct -n -P -j {job}.batch --format=State,MaxRSS")
        return output.strip().split("|")

    eventually("the job has ended", lambda: used()[0] == "COMPLETED")
    size = re.fullmatch(r"(\d+)K", used()[1])
    assert size, used()
    assert int(size[1]) > 50_000, "MaxRSS is more than 50,000 KiB"


def test_scancel_of_another_users_job_does_not_block_slurmctld(cluster: Cluster) -> None:
    """Without accounting, slurmctld 24.11 deadlocks here: job_mgr.c searches a missing list."""
    job = cluster.user("sbatch --parsable -o /dev/null --wrap 'sleep 100'")

    output = cluster.user(f"scancel --ctld {job} 2>&1 || true", name="student")

    assert "denied" in output
    assert cluster.user("timeout 10 sinfo --noheader --format=%R") == "main"
    cluster.user(f"scancel {job}")


def test_slurmctld_logs_no_errors(cluster: Cluster) -> None:
    # Ignore two errors that every new cluster without a federation logs.
    assert (
        cluster.slurmctld.errors(r"No fed_mgr state file", r"auth_p_get_host: Lookup failed") == []
    )
