"""What becomes of records when the database or slurmdbd fails, by what jobs note themselves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from components.conventions import DATABASE_RUN
from tests.support.accounting import PASSWORD, Cluster, accounted, start_dbd
from tests.support.waiting import eventually

ENDS = "/tmp/ends"
"""Where each job of the load notes its id as the last thing that it does."""
STOP = "/tmp/stop"
LOAD = f"""
cd /tmp
until [ -e {STOP} ]; do
  sbatch -Q -o /dev/null --wrap 'echo $SLURM_JOB_ID >>{ENDS}' || true
  sleep 0.2
done
"""
VERSION = "UPDATE convert_version_table SET version="
KILLS = 20
FEW = 20
"""Jobs that must have ended for a test to mean anything."""


def noted(cluster: Cluster) -> set[str]:
    return set(cluster.worker.run(f"cat {ENDS} 2>/dev/null || true", "root").split())


def goes_on(cluster: Cluster) -> None:
    before = len(noted(cluster))
    eventually("jobs go on", lambda: len(noted(cluster)) > before)


def on_record(cluster: Cluster) -> set[str]:
    records = cluster.records("JobIDRaw", "State", "End")
    return {job for job, state, end in records if state == "COMPLETED" and end != "Unknown"}


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Jobs that begin and end all the time."""
    cluster.worker.run(f"rm -f {ENDS} {STOP}", "root")
    cluster.worker.container.exec_run(["bash", "-c", LOAD], user="2000:2000", detach=True)
    try:
        eventually("jobs end", lambda: len(noted(cluster)) > 3)
        yield
        eventually("enough jobs end", lambda: len(noted(cluster)) > FEW)
    finally:
        cluster.worker.run(f"touch {STOP}", "root")
    deadline = time.monotonic() + 120
    while cluster.slurmctld.run("squeue -h"):
        assert time.monotonic() < deadline, "the queue is never empty"
        time.sleep(1)


def nothing_is_missing(cluster: Cluster) -> None:
    ended = noted(cluster)
    cluster.dbd.await_answer()
    deadline = time.monotonic() + 60
    while missing := ended - on_record(cluster):
        told = cluster.records("JobIDRaw", "State", where=f"--duplicates -j {','.join(missing)}")
        assert time.monotonic() < deadline, f"of {len(ended)}, {missing} are missing: {told}"
        time.sleep(0.5)


def test_a_database_that_is_killed_in_the_middle_of_writes_has_lost_nothing(
    cluster: Cluster,
) -> None:
    with load(cluster):
        for i in range(KILLS):
            time.sleep(0.1 * (i % 7))
            cluster.database.kill("KILL")
            cluster.database.start()

    nothing_is_missing(cluster)


def test_what_the_database_is_killed_before_keeping_is_told_once_more(cluster: Cluster) -> None:
    """slurmdbd answers slurmctld whatever becomes of its commit."""
    with cluster.database.keeping_nothing():
        job = cluster.user("sbatch --parsable -o /dev/null --wrap 'exit 3'")
        waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE '%backup%'"
        eventually("slurmdbd waits", lambda: cluster.database.sql(waits) != "0")
        cluster.database.kill("KILL")
    cluster.database.start()

    def told() -> list[tuple[str, ...]]:
        return cluster.records("State", "ExitCode", where=f"-j {job}")

    cluster.dbd.await_answer()
    eventually("it is on record", lambda: told() == [("FAILED", "3:0")])
    assert "did not commit a transaction" in cluster.dbd.log()


def test_a_full_volume_holds_records_back_until_there_is_room(cluster: Cluster) -> None:
    with cluster.database.full():
        eventually("it is told", lambda: "alert: the volume is full" in cluster.database.log())
        # What a user types is on record, so this much must be written.
        big = f"echo $SLURM_JOB_ID >>{ENDS}; : {'x' * 100_000}"
        jobs = {cluster.user(f"sbatch --parsable -o /dev/null --wrap '{big}'") for _ in range(20)}
        eventually("jobs go on", lambda: jobs <= noted(cluster))
        eventually("slurmdbd says why", lambda: "read-only" in cluster.dbd.log())
        assert not jobs & on_record(cluster), "and what is there can be read"

    eventually("it is told", lambda: "the volume has free space again" in cluster.database.log())
    eventually("all are on record", lambda: jobs <= on_record(cluster))


def test_what_another_transaction_changed_meanwhile_can_be_written(cluster: Cluster) -> None:
    """MariaDB refuses that by default, and slurmdbd never tries a second time."""
    client = f"mariadb --no-defaults --socket={DATABASE_RUN}/mysqld.sock -N slurm_acct_db"
    change = "UPDATE meanwhile SET number = number + 1"
    cluster.database.container.run(
        f"""{client} <<'END'
CREATE TABLE meanwhile (number INT) ENGINE=InnoDB;
INSERT INTO meanwhile VALUES (0);
BEGIN;
SELECT number FROM meanwhile;
system {client} -e '{change}'
{change};
COMMIT;
END""",
        "mysql",
    )
    assert cluster.database.sql("SELECT number FROM slurm_acct_db.meanwhile") == "2"
    cluster.database.sql("DROP TABLE slurm_acct_db.meanwhile")


def test_what_ends_while_slurmdbd_is_away_is_told_when_it_is_back(cluster: Cluster) -> None:
    with load(cluster):
        for _ in range(3):
            cluster.dbd.stop()
            goes_on(cluster)
            cluster.dbd.start()

    nothing_is_missing(cluster)


@pytest.mark.parametrize(
    ("host", "password", "line"),
    [
        (True, "wrong", "Access denied for user 'slurm'"),
        (False, PASSWORD, "database"),
        (True, "two words", "has a blank, a quote, # or \\"),
        (True, "a#b", "has a blank, a quote, # or \\"),
        (True, 'a"b', "has a blank, a quote, # or \\"),
        (True, "", "is empty"),
    ],
    ids=["wrong password", "unknown host", "a blank", "a comment", "a quote", "nothing"],
)
def test_why_slurmdbd_does_not_start_is_one_line(
    cluster: Cluster, host: bool, password: str, line: str
) -> None:
    secret = cluster.dbd.container.run("cat /tmp/secret", "root")
    dbd = start_dbd(cluster.start, secret, cluster.database if host else None)
    dbd.install(accounted(), password)

    dbd.begin()

    eventually("it says why", lambda: bool(dbd.log().strip()))
    time.sleep(3)
    (said,) = dbd.log().splitlines()
    assert line in said
    assert password not in ("wrong", "two words") or password not in said


def test_a_schema_of_another_release_is_told(cluster: Cluster) -> None:
    secret = cluster.dbd.container.run("cat /tmp/secret", "root")
    version = cluster.database.sql("SELECT version FROM slurm_acct_db.convert_version_table")
    dbd = start_dbd(cluster.start, secret, cluster.database)
    dbd.install(accounted())

    def pretend(number: str) -> None:
        cluster.database.sql(f"USE slurm_acct_db; {VERSION}{number}")

    pretend("1")
    try:
        dbd.begin()
        eventually("it says why", lambda: "fatal" in dbd.log())
        assert "too old" in dbd.log().lower() or "no longer supported" in dbd.log().lower()
    finally:
        pretend(version)
