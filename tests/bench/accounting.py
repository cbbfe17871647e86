"""Measure how much accounting slows jobs down, and how fast `sacct` answers.

This needs no Kubernetes: the daemons run in containers.
"""

import statistics
import time
from typing import Any

import pytest
import yaml
from docker.models.containers import Container

from local.paths import ROOT
from tests.bench.figures import Figures, say
from tests.bench.load import ROUNDS, SUBMITTERS, alternate
from tests.support.accounting import USERS, Cluster, accounted, one_cluster
from tests.support.graph import record, templates
from tests.support.stack import VALID, alone, config
from tests.support.waiting import eventually

POOL = 128
"""The database's memory for tables in MiB, as in the dev stack."""
JOBS = 200
THROUGHPUT = f"""
begin=$(date +%s%N)
seq {JOBS} | xargs -P{SUBMITTERS} -I% sbatch --quiet --output=/dev/null --mem=100 --wrap=true
while [ "$(squeue --noheader --format=%A)" ]; do sleep 0.1; done
echo $(($(date +%s%N) - begin))
"""
"""Script that prints the nanoseconds from the first submission until all jobs have ended."""
DAY = 100_000
"""Number of jobs in one day."""
ASKED = 5


def measure(figures: Figures) -> None:
    say(f"running {JOBS} jobs with and without accounting, {ROUNDS} times")
    with one_cluster(accounted(as_by_default), room=None, pool=POOL) as cluster:
        with one_cluster(alone(), room=None) as without:
            _weigh(cluster, without)
            took = alternate(lambda: _jobs(cluster), lambda: _jobs(without))
        ratio = statistics.median(none / some for some, none in took)
        figures.add(
            "jobs per second, ratio with accounting/without accounting", ratio, at_least=0.95
        )
        _a_day(figures, cluster)


def as_by_default(values: dict[str, Any]) -> None:
    values["accounting"] = {"gather_interval": 30}


def _weigh(*clusters: Cluster) -> None:
    for cluster in clusters:
        weigh(
            mariadb=cluster.database.container.container,
            slurmdbd=cluster.dbd.container.container,
            slurmctld=cluster.slurmctld.container,
            slurmd=cluster.worker.container,
        )


def weigh(**daemons: Container) -> None:
    """Give daemons the CPU shares of their pods in the dev stack."""
    reserved = _reserved()
    for name, container in daemons.items():
        # Convert millicores (thousandths of a CPU) to shares, as the kubelet does.
        container.update(cpu_shares=reserved[name] * 1024 // 1000)


def _reserved() -> dict[str, int]:
    """Return the CPU requests of the dev stack in millicores, by container name."""
    stack = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
    values = {key.removeprefix("slurmstack:"): value for key, value in stack.items()}
    # Use other users: the SSH key file of the dev stack's user exists only after `make up`.
    values["users"] = VALID["users"]
    with pytest.MonkeyPatch.context() as patch:
        pods = templates(record(patch, config(base=values)))
    return {
        container["name"]: _millicores(container["resources"]["requests"]["cpu"])
        for pod in pods.values()
        for container in pod["spec"]["containers"]
        if "resources" in container
    }


def _millicores(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else round(float(cpu) * 1000)


def _jobs(cluster: Cluster) -> float:
    return int(cluster.user(THROUGHPUT)) / 1e9


def _a_day(figures: Figures, cluster: Cluster) -> None:
    say(f"measuring sacct on the records of a day with {DAY} jobs")
    midnight = int(time.time()) // 86_400 * 86_400 - 86_400
    _fill(cluster, midnight)
    begin, end = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(midnight + offset)) for offset in (0, 86_400)
    )
    ask = f"sacct --allusers --noheader --starttime={begin} --endtime={end}"
    for what, options in (("jobs", "--allocations"), ("jobs and steps", "")):
        took = statistics.median(_ask(cluster, f"{ask} {options}") for _ in range(ASKED))
        figures.add(f"sacct over a day of {DAY} jobs, {what}", took, at_most=2)


def _ask(cluster: Cluster, command: str) -> float:
    """Return the seconds until the command has printed its complete output."""
    begin = time.monotonic()
    found = int(cluster.slurmctld.run(f"{command} | wc -l"))
    took = time.monotonic() - begin
    assert found >= DAY, found
    return took


def _fill(cluster: Cluster, midnight: int) -> None:
    """Fill a day with records of jobs, at equal intervals.

    Run one real job, then copy its record and the record of its batch step for each job of the day.
    """
    job = cluster.user("sbatch --parsable --wait --output=/dev/null --mem=100 --wrap=true")
    eventually("sacct shows the job", lambda: cluster.records("State", where=f"-j {job}") != [])
    at = f"{midnight} + (seq - 1) * 86400 DIV {DAY}"
    index = f"(SELECT MAX(job_db_inx) FROM slurm_acct_db.test_job_table WHERE id_job = {job})"
    _copy(
        cluster,
        "test_job_table",
        f"id_job = {job}",
        job_db_inx="1000000 + seq",
        id_job="1000000 + seq",
        id_user=str(next(iter(USERS.values()))),
        time_submit=at,
        time_eligible=at,
        time_start=at,
        time_end=f"{at} + 60",
    )
    _copy(
        cluster,
        "test_step_table",
        f"job_db_inx = {index} AND step_name = 'batch'",
        job_db_inx="1000000 + seq",
        time_start=at,
        time_end=f"{at} + 60",
    )


def _copy(cluster: Cluster, table: str, where: str, **changed: str) -> None:
    columns = cluster.database.sql(
        "SELECT column_name FROM information_schema.columns "
        f"WHERE table_schema = 'slurm_acct_db' AND table_name = '{table}'"
    ).split()
    values = ", ".join(changed.get(column, f"{table}.\\`{column}\\`") for column in columns)
    names = ", ".join(f"\\`{column}\\`" for column in columns)
    cluster.database.sql(
        f"INSERT INTO slurm_acct_db.{table} ({names}) "
        f"SELECT {values} FROM slurm_acct_db.{table}, slurm_acct_db.seq_1_to_{DAY} WHERE {where}"
    )
