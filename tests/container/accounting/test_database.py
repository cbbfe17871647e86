"""No record is lost if the database or slurmdbd fails.

Each job appends its id to a file, which the tests compare with the records. slurmdbd runs with the
library images/accounting/restart.c, which restarts slurmdbd after some errors of the database.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from components import conventions as c
from tests.support.accounting import PASSWORD, Cluster, Dbd, accounted, start_dbd
from tests.support.waiting import eventually

ENDS = "/tmp/ends"
"""File to which each job of the load appends its id at its end."""
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
"""Number of jobs that must end during a test."""


def noted(cluster: Cluster) -> set[str]:
    return set(cluster.worker.run(f"cat {ENDS} 2>/dev/null || true", "root").split())


def jobs_end(cluster: Cluster) -> None:
    before = len(noted(cluster))
    eventually("jobs continue", lambda: len(noted(cluster)) > before)


def on_record(cluster: Cluster) -> set[str]:
    records = cluster.records("JobIDRaw", "State", "End")
    return {job for job, state, end in records if state == "COMPLETED" and end != "Unknown"}


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Submit short jobs continuously during the `with` block."""
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
        assert time.monotonic() < deadline, "the queue is empty after two minutes"
        time.sleep(1)


def assert_all_on_record(cluster: Cluster) -> None:
    ended = noted(cluster)
    cluster.dbd.await_answer()
    deadline = time.monotonic() + 60
    while missing := ended - on_record(cluster):
        records = cluster.records("JobIDRaw", "State", where=f"--duplicates -j {','.join(missing)}")
        assert time.monotonic() < deadline, (
            f"jobs without a complete record: {missing} (of {len(ended)} jobs); records: {records}"
        )
        time.sleep(0.5)


def test_database_killed_during_writes_loses_no_record(
    cluster: Cluster,
) -> None:
    with load(cluster):
        for i in range(KILLS):
            time.sleep(0.1 * (i % 7))
            cluster.database.kill("KILL")
            cluster.database.start()

    assert_all_on_record(cluster)


def test_slurmctld_resends_records_that_a_failed_commit_lost(cluster: Cluster) -> None:
    """Without restart.c, slurmdbd acknowledges records to slurmctld even if the commit fails."""
    with cluster.database.keeping_nothing():
        job = cluster.user("sbatch --parsable -o /dev/null --wrap 'exit 3'")
        waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE '%backup%'"
        eventually("slurmdbd waits", lambda: cluster.database.sql(waits) != "0")
        cluster.database.kill("KILL")
    cluster.database.start()

    def states() -> list[tuple[str, ...]]:
        return cluster.records("State", "ExitCode", where=f"-j {job}")

    cluster.dbd.await_answer()
    eventually("the job is on record", lambda: states() == [("FAILED", "3:0")])
    assert "did not commit a transaction" in cluster.dbd.log()


def test_no_record_is_lost_while_the_volume_is_full(cluster: Cluster) -> None:
    with cluster.database.full():
        eventually(
            "the database logs an alert",
            lambda: "alert: the volume is full" in cluster.database.log(),
        )
        # Submit long commands, because slurmdbd stores the user's command in the job's record and
        # thus needs space.
        big = f"echo $SLURM_JOB_ID >>{ENDS}; : {'x' * 100_000}"
        jobs = {cluster.user(f"sbatch --parsable -o /dev/null --wrap '{big}'") for _ in range(20)}
        eventually("jobs continue", lambda: jobs <= noted(cluster))
        eventually("slurmdbd logs the reason", lambda: "read-only" in cluster.dbd.log())
        assert not jobs & on_record(cluster), "the database still answers, but stores no new record"

    eventually(
        "the database logs the free space",
        lambda: "the volume has free space again" in cluster.database.log(),
    )
    eventually("all jobs are on record", lambda: jobs <= on_record(cluster))


def test_transaction_can_update_a_row_that_another_transaction_changed(cluster: Cluster) -> None:
    """By default, MariaDB refuses this write, and slurmdbd does not retry."""
    client = f"mariadb --no-defaults --socket={c.DATABASE_RUN}/mysqld.sock -N slurm_acct_db"
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


def test_jobs_that_end_while_slurmdbd_is_down_are_recorded_later(cluster: Cluster) -> None:
    with load(cluster):
        for _ in range(3):
            cluster.dbd.stop()
            jobs_end(cluster)
            cluster.dbd.start()

    assert_all_on_record(cluster)


@pytest.mark.parametrize(
    ("host", "password", "line"),
    [
        (True, "wrong", "Access denied for user 'slurm'"),
        (False, PASSWORD, "database"),
        (True, "two words", "contains a blank, a quote, # or \\"),
        (True, "a#b", "contains a blank, a quote, # or \\"),
        (True, 'a"b', "contains a blank, a quote, # or \\"),
        (True, "", "is empty"),
    ],
    ids=["wrong password", "unknown host", "blank", "hash sign", "quote", "empty password"],
)
def test_slurmdbd_logs_one_line_if_it_cannot_start(
    cluster: Cluster, host: bool, password: str, line: str
) -> None:
    secret = cluster.dbd.container.run("cat /tmp/secret", "root")
    dbd = start_dbd(cluster.start, secret, cluster.database if host else None)
    dbd.install(accounted(), password)

    dbd.begin()

    eventually("slurmdbd logs the reason", lambda: bool(dbd.log().strip()))
    time.sleep(3)
    (message,) = dbd.log().splitlines()
    assert line in message
    assert password not in ("wrong", "two words") or password not in message


@pytest.fixture
def reader(cluster: Cluster) -> Iterator[Dbd]:
    """A second slurmdbd, which the test starts. Its database user `reader` has no rights."""
    secret = cluster.dbd.container.run("cat /tmp/secret", "root")
    dbd = start_dbd(cluster.start, secret, cluster.database)
    dbd.install(accounted())
    files = f"{c.ACCOUNTING_ETC}/slurmdbd.conf {c.ACCOUNTING_ETC}/client.cnf"
    dbd.container.run(f"sed -i -E '/^(StorageUser|user)=/s/=.*/=reader/' {files}", "root")
    cluster.database.sql(f"CREATE USER 'reader'@'%' IDENTIFIED BY '{PASSWORD}'")
    yield dbd
    dbd.stop()
    cluster.database.sql("DROP USER 'reader'@'%'")


def test_slurmdbd_restarts_if_it_cannot_connect_during_its_start(
    cluster: Cluster, reader: Dbd
) -> None:
    """Without restart.c, slurmdbd waits forever for a thread that never ends."""
    allow = "GRANT ALL ON slurm_acct_db.* TO 'reader'@'%' WITH MAX_CONNECTIONS_PER_HOUR"
    # Allow two connections, which the start script and the storage plugin use. The next connection,
    # with which slurmdbd reads its lists, then fails.
    cluster.database.sql(f"{allow} 2")

    reader.begin()

    eventually("slurmdbd restarts", lambda: "restarting slurmdbd" in reader.log())
    cluster.database.sql(f"{allow} 0")
    eventually("slurmdbd answers", reader.answers)


def test_slurmdbd_restarts_if_a_query_fails_during_its_start(cluster: Cluster, reader: Dbd) -> None:
    """Without restart.c, slurmdbd continues without the QOS that it cannot read."""
    sql, tables = cluster.database.sql, "information_schema.tables"
    names = sql(f"SELECT table_name FROM {tables} WHERE table_schema = 'slurm_acct_db'").split()
    write = "CREATE, ALTER, DROP, INDEX, INSERT, UPDATE, DELETE"
    sql(f"GRANT {write}, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON slurm_acct_db.* TO 'reader'@'%'")
    for name in {*names} - {"qos_table"}:
        sql(f"GRANT SELECT ON slurm_acct_db.{name} TO 'reader'@'%'")
    sql("GRANT SELECT (id, name, deleted) ON slurm_acct_db.qos_table TO 'reader'@'%'")

    reader.begin()

    eventually("slurmdbd restarts", lambda: "restarting slurmdbd" in reader.log())
    assert "SELECT command denied" in reader.log()
    sql("GRANT SELECT ON slurm_acct_db.* TO 'reader'@'%'")
    eventually("slurmdbd answers", reader.answers)


def test_slurmdbd_reports_a_schema_of_another_release(cluster: Cluster) -> None:
    secret = cluster.dbd.container.run("cat /tmp/secret", "root")
    version = cluster.database.sql("SELECT version FROM slurm_acct_db.convert_version_table")
    dbd = start_dbd(cluster.start, secret, cluster.database)
    dbd.install(accounted())

    def pretend(number: str) -> None:
        cluster.database.sql(f"USE slurm_acct_db; {VERSION}{number}")

    pretend("1")
    try:
        dbd.begin()
        eventually("slurmdbd logs the reason", lambda: "fatal" in dbd.log())
        assert "too old" in dbd.log().lower() or "no longer supported" in dbd.log().lower()
    finally:
        pretend(version)
