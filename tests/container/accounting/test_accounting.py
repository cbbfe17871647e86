"""What slurmdbd is told, by the images and files of a stack."""

import re

import pytest

from tests.support.accounting import NODE, Cluster
from tests.support.waiting import eventually

TRES = "billing=2,cpu=2,mem=200M,node=1"
JOBS = [
    # Script, and how it ends.
    ("true", "COMPLETED", "0:0"),
    ("exit 3", "FAILED", "3:0"),
    ("kill -9 $$", "FAILED", "0:9"),
]


def record(cluster: Cluster, job: str, *fields: str) -> tuple[str, ...]:
    """What is on record of one run of a job; nothing until slurmdbd has heard of it."""
    (found,) = cluster.records(*fields, where=f"-j {job}") or [()]
    return found


@pytest.mark.parametrize(("script", "state", "code"), JOBS)
def test_a_job_is_on_record_as_it_ended(
    cluster: Cluster, script: str, state: str, code: str
) -> None:
    job = cluster.user(
        f"sbatch --parsable -o /dev/null --ntasks=2 --mem-per-cpu=100 --wrap '{script}'"
    )

    ended = ("State", "ExitCode", "AllocTRES", "NodeList", "User")
    expected = (state, code, TRES, NODE, "researcher")
    eventually("it is on record", lambda: record(cluster, job, *ended) == expected)


def test_a_cancelled_job_names_who_cancelled_it(cluster: Cluster) -> None:
    job = cluster.user("sbatch --parsable -o /dev/null --wrap 'sleep 100'")
    eventually("it runs", lambda: record(cluster, job, "State") == ("RUNNING",))

    cluster.user(f"scancel {job}")

    eventually("it is", lambda: record(cluster, job, "State") == ("CANCELLED by 2000",))


def test_each_element_of_an_array_is_on_record(cluster: Cluster) -> None:
    job = cluster.user("sbatch --parsable --array=1-3 -o /dev/null --wrap true")

    def found() -> set[tuple[str, ...]]:
        return set(cluster.records("JobID", "State", where=f"-j {job}"))

    expected = {(f"{job}_{index}", "COMPLETED") for index in (1, 2, 3)}
    eventually("all are", lambda: found() == expected)


def test_a_requeued_job_has_both_of_its_runs_on_record(cluster: Cluster) -> None:
    job = cluster.user("sbatch --parsable --requeue -o /dev/null --wrap 'sleep 100'")
    eventually("it runs", lambda: record(cluster, job, "State") == ("RUNNING",))

    cluster.slurmctld.run(f"scontrol requeue {job}")
    ask = f"--duplicates -j {job}"
    eventually("it waits again", lambda: len(cluster.records("State", where=ask)) == 2)
    cluster.user(f"scancel {job}")

    states = {("REQUEUED",), ("CANCELLED by 2000",)}
    eventually("both have ended", lambda: set(cluster.records("State", where=ask)) == states)


def test_what_tasks_used_is_on_record(cluster: Cluster) -> None:
    hog = 'x=$(head -c 80000000 /dev/zero | tr "\\0" a); sleep 3'
    job = cluster.user(f"sbatch --parsable --mem=900 -o /dev/null --wrap '{hog}'")

    def used() -> list[str]:
        told = cluster.slurmctld.run(f"sacct -n -P -j {job}.batch --format=State,MaxRSS")
        return told.strip().split("|")

    eventually("it has ended", lambda: used()[0] == "COMPLETED")
    size = re.fullmatch(r"(\d+)K", used()[1])
    assert size, used()
    assert int(size[1]) > 50_000, "in KiB"


def test_who_cancels_somebody_elses_job_is_refused_and_slurmctld_goes_on(cluster: Cluster) -> None:
    """Without accounting, Slurm 24.11 locks itself up there (job_mgr.c asks a list that is not)."""
    job = cluster.user("sbatch --parsable -o /dev/null --wrap 'sleep 100'")

    told = cluster.user(f"scancel --ctld {job} 2>&1 || true", name="student")

    assert "denied" in told
    assert cluster.user("timeout 10 sinfo --noheader --format=%R") == "main"
    cluster.user(f"scancel {job}")


def test_slurmctld_has_nothing_to_complain_of(cluster: Cluster) -> None:
    # As of every cluster that is new, or in no federation.
    assert (
        cluster.slurmctld.errors(r"No fed_mgr state file", r"auth_p_get_host: Lookup failed") == []
    )
