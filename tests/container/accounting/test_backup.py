"""Dumps of the database, and restores from them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components import conventions as c
from tests.container.accounting import s3
from tests.container.accounting.dumps import Dumps, dumping, small
from tests.support.accounting import (
    PASSWORD,
    Cluster,
    Database,
    Dbd,
    accounted,
    start_database,
    start_dbd,
)
from tests.support.containers import put
from tests.support.waiting import eventually

FIELDS = (
    *("JobIDRaw", "JobName", "User", "UID", "Account", "Partition", "Cluster", "QOS", "State"),
    *("ExitCode", "DerivedExitCode", "Submit", "Eligible", "Start", "End", "Elapsed", "NNodes"),
    *("AllocCPUS", "ReqTRES", "AllocTRES", "NodeList", "AssocID", "DBIndex", "WorkDir"),
    *("SubmitLine", "TotalCPU", "TRESUsageInMax", "Timelimit", "Priority", "Comment"),
)
QUERIES = (
    f"sacct --allusers --duplicates --allclusters -S 2020-01-01 -n -P --format={','.join(FIELDS)}",
    "sacctmgr -n -P show assoc format=cluster,account,user,partition,id,parentid,share,qos",
    "sacctmgr -n -P show tres",
    "sacctmgr -n -P show qos",
    "sacctmgr -n -P show account withassoc",
    "sacctmgr -n -P show cluster format=cluster,id,rpc,tres",
    "sacctmgr -n -P show event all_clusters start=2020-01-01 format=cluster,nodename,start,reason",
)
ORPHANS = (
    "SELECT COUNT(*) FROM test_step_table"
    " WHERE job_db_inx NOT IN (SELECT job_db_inx FROM test_job_table)"
)
"""SQL query that counts steps without a job."""
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}


def query(dbd: Dbd, *commands: str) -> list[str]:
    """Return the output of Slurm commands that query this slurmdbd."""
    slurm = f"export SLURM_CONF={c.DBD_RUN}/slurm.conf; "
    return [dbd.container.run(slurm + command) for command in commands or QUERIES]


@pytest.fixture
def dumps(cluster: Cluster) -> Dumps:
    return dumping(cluster.start, cluster.database)


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Database]:
    """A second, empty database."""
    database = start_database(cluster.start, tmpfs={c.DATABASE_DATA: ""})
    database.start()
    yield database
    database.container.container.kill()


def slurmdbd_of(cluster: Cluster, database: Database) -> Dbd:
    """Return another slurmdbd for this database, without starting it."""
    secret = cluster.dbd.container.run("cat /tmp/secret", "root")
    dbd = start_dbd(cluster.start, secret, database)
    dbd.install(accounted())
    passwd = cluster.dbd.container.run(f"cat {c.EXTRAUSERS}/passwd", "root")
    dbd.container.run(f"mkdir -p {c.EXTRAUSERS}; echo '{passwd}' >{c.EXTRAUSERS}/passwd", "root")
    return dbd


def with_database(dumps: Dumps, database: Database) -> Dumps:
    """Change the database that the backup container uses."""
    container = dumps.container
    container.run(
        f"sed -i s/^host=.*/host={database.container.address}/ {c.ACCOUNTING_ETC}/client.cnf",
        "root",
    )
    return dumps


def ended(records: list[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return {record for record in records if record[1].split()[0] in ENDED}


def test_dump_made_under_load_restores_the_same_records(
    cluster: Cluster, dumps: Dumps, empty: Database
) -> None:
    fields = ("JobIDRaw", "State", "Submit", "Start", "End", "ExitCode", "AllocTRES")
    load = 'cd /tmp; for i in $(seq 60); do sbatch -Q -o /dev/null --wrap "exit $((i % 3))"; done'
    cluster.worker.container.exec_run(["bash", "-c", load], user="2000:2000", detach=True)
    eventually("jobs end", lambda: len(ended(cluster.records(*fields))) > 5)
    before = ended(cluster.records(*fields))

    name = dumps.dump()

    eventually("the queue is empty", lambda: not cluster.slurmctld.run("squeue -h"))
    code, output = with_database(dumps, empty).run("restore", SNAPSHOT=name)
    assert (code, "loaded dump" in output) == (0, True), output
    dbd = slurmdbd_of(cluster, empty)
    dbd.start()
    command = f"sacct -X -n -P --allusers --format={','.join(fields)}"
    loaded = ended([tuple(line.split("|")) for line in query(dbd, command)[0].splitlines()])
    assert before <= loaded, "the dump contains all jobs that ended before it"
    eventually("all loaded jobs are on record", lambda: loaded <= ended(cluster.records(*fields)))
    assert empty.sql(f"USE slurm_acct_db; {ORPHANS}") == "0"


def test_slurm_reports_the_same_history_after_a_restore(
    cluster: Cluster, dumps: Dumps, empty: Database
) -> None:
    cluster.slurmctld.run("sacctmgr -i add account physics description=d organization=o || true")
    cluster.slurmctld.run("sacctmgr -i add user researcher account=physics fairshare=7 || true")
    cluster.user("sbatch --parsable --wait -o /dev/null -J 'ünï code' --wrap 'srun hostname'")
    cluster.user("sbatch --parsable --wait -o /dev/null --wrap 'exit 3' || true", "student")
    eventually("no job is active", lambda: not any_job_is_active(cluster))
    expected = query(cluster.dbd)

    dumps.dump()
    with_database(dumps, empty).run("restore", SNAPSHOT="latest")
    dbd = slurmdbd_of(cluster, empty)
    dbd.start()

    for command, old, new in zip(QUERIES, expected, query(dbd), strict=True):
        assert old, command
        assert new == old, command


def any_job_is_active(cluster: Cluster) -> bool:
    states = cluster.records("JobIDRaw", "State", "End")
    return any(state.split()[0] not in ENDED or end == "Unknown" for _, state, end in states)


def test_restore_does_not_overwrite_existing_tables(cluster: Cluster, dumps: Dumps) -> None:
    eventually("no job is active", lambda: not any_job_is_active(cluster))
    dumps.dump()
    expected = query(cluster.dbd)

    code, output = dumps.run("restore", SNAPSHOT="latest")

    assert code == 0
    assert output == "restore: database slurm_acct_db already has tables, so no dump is loaded"
    assert query(cluster.dbd) == expected


def test_slurmdbd_does_not_start_until_an_interrupted_restore_is_repeated(
    cluster: Cluster, dumps: Dumps, empty: Database
) -> None:
    dumps.dump()
    tables = cluster.database.sql("SHOW TABLES FROM slurm_acct_db").split()
    with_database(dumps, empty)
    half = ("slurmstack_restore", tables[3])
    empty.sql("; ".join(f"CREATE TABLE slurm_acct_db.{table} (a INT)" for table in half))
    dbd = slurmdbd_of(cluster, empty)
    dbd.begin()
    eventually("slurmdbd logs the reason", lambda: "was interrupted" in dbd.log())
    assert len(dbd.log().splitlines()) == 1

    code, output = dumps.run("restore", SNAPSHOT="latest")

    assert code == 0, output
    expected = "restore: the last load was interrupted: loading the dump again"
    assert output.splitlines()[0] == expected
    assert empty.sql("SHOW TABLES FROM slurm_acct_db").split() == tables
    dbd.start()


@pytest.mark.parametrize("pause", [0.3, 0.6, 1.0, 1.5])
def test_killed_restore_is_detected_and_repeated(
    cluster: Cluster, dumps: Dumps, empty: Database, pause: float
) -> None:
    dumps.dump()
    with_database(dumps, empty).begin("restore", SNAPSHOT="latest")
    time.sleep(pause)
    dumps.kill()

    found = empty.sql("SHOW TABLES FROM slurm_acct_db").split()
    expected = cluster.database.sql("SHOW TABLES FROM slurm_acct_db").split()
    assert not found or "slurmstack_restore" in found or found == expected

    assert dumps.run("restore", SNAPSHOT="latest")[0] == 0
    assert empty.sql("SHOW TABLES FROM slurm_acct_db").split() == expected


def test_backup_keeps_the_configured_number_of_dumps(dumps: Dumps) -> None:
    keep = {"KEEP": "--keep-last=2"}
    names = []
    for _ in range(4):
        code, output = dumps.run(**keep)
        assert code == 0
        names.append(output.split()[2])

    assert dumps.names() == names[-2:]
    assert [name in output for name in names] == [False, False, True, True]


def test_killed_dump_is_not_listed_and_damages_no_other_dump(dumps: Dumps) -> None:
    first = dumps.dump()
    for pause in (0.2, 0.5, 0.8, 1.1, 1.6, 2.2, 3.0):
        dumps.begin()
        time.sleep(pause)
        dumps.kill()
        assert dumps.names()[0] == first

    last = dumps.dump()

    assert dumps.names()[-1] == last
    for name in dumps.names():
        assert "-- Dump completed" in dumps.restic(f"dump {name} /slurm_acct_db.sql | tail -n 1")
    assert "no errors were found" in dumps.restic("check --read-data")


NOISE = """
CREATE DATABASE noise;
GRANT ALL ON noise.* TO slurm;
USE noise;
CREATE TABLE noise.t (b BLOB);
INSERT INTO noise.t SELECT RANDOM_BYTES(1024) FROM seq_1_to_36864;
"""


@pytest.fixture
def noise(cluster: Cluster) -> Iterator[str]:
    """A database of 36 MiB of incompressible data."""
    cluster.database.sql(NOISE)
    yield "noise"
    cluster.database.sql("DROP DATABASE noise")


def test_reports_a_full_store_and_keeps_its_dumps(cluster: Cluster, noise: str) -> None:
    dumps = dumping(cluster.start, cluster.database, tmpfs=small(20))
    first = dumps.dump()

    for _ in range(3):
        code, output = dumps.run(DATABASE=noise)

        assert code != 0
        assert output.startswith("backup: cannot dump noise: ")
        assert output.endswith("no space left on device")
        assert len(output.splitlines()) == 1
        assert dumps.names() == [first]
    assert dumps.dump() == dumps.names()[-1], "incomplete dumps no longer use space"


def test_backup_to_a_full_store_fails_with_one_line(cluster: Cluster) -> None:
    dumps = dumping(cluster.start, cluster.database, tmpfs=small(20))
    first = dumps.dump()
    ballast = f"{c.BACKUP_DATA}/ballast"
    dumps.container.run(f"cat /dev/zero >{ballast} || true", "slurm")

    code, output = dumps.run()

    assert (code, len(output.splitlines())) == (1, 1), output
    assert output.startswith("backup: ")
    assert output.endswith("no space left on device")
    dumps.container.run(f"rm {ballast}", "slurm")
    assert dumps.names() == [first]
    dumps.dump()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"password": "wrong"}, "Access denied for user 'slurm'"),
        ({"database": "nowhere.example.org"}, "nowhere.example.org"),
        ({"database": "127.0.0.1"}, "127.0.0.1"),
    ],
    ids=["wrong password", "unknown host", "no server"],
)
def test_error_about_an_unavailable_database_has_one_line(
    cluster: Cluster, changes: dict[str, Any], expected: str
) -> None:
    dumps = dumping(cluster.start, **{"database": cluster.database, **changes})
    # Let the lookup of an unknown name fail at once.
    dumps.container.run("echo nameserver 127.0.0.1 >/etc/resolv.conf", "root")

    code, output = dumps.run()

    assert (code, len(output.splitlines())) == (1, 1), output
    assert output.startswith("backup: cannot dump slurm_acct_db: ")
    assert expected in output
    assert "wrong" not in output, "the output does not contain the password"
    assert dumps.names() == []


def test_error_about_a_missing_dump_has_one_line(
    cluster: Cluster, dumps: Dumps, empty: Database
) -> None:
    with_database(dumps, empty)
    code, output = dumps.run("restore", SNAPSHOT="latest")
    assert (code, len(output.splitlines())) == (1, 1), output
    assert output.startswith(f"restore: cannot open the store {c.BACKUP_DATA}/test: ")

    with_database(dumps, cluster.database).dump()
    code, output = with_database(dumps, empty).run("restore", SNAPSHOT="1f2e3d4c")
    assert (code, output) == (
        1,
        (
            f"restore: no dump '1f2e3d4c' of test in {c.BACKUP_DATA}/test:"
            " correct 'accounting.backup.restore'"
        ),
    )
    assert empty.sql("SHOW TABLES FROM slurm_acct_db") == ""


def test_dumps_require_their_password(cluster: Cluster) -> None:
    dumps = dumping(cluster.start, cluster.database)
    password = f"{c.BACKUP_PASSWORD}/password"
    put(dumps.container.container, {password: "open-sesame"})
    assert dumps.run()[0] == 0
    put(dumps.container.container, {password: "wrong"})

    code, output = dumps.run()

    assert (code, len(output.splitlines())) == (1, 1), output
    assert "wrong password" in output


def test_processes_and_logs_contain_no_credential(dumps: Dumps) -> None:
    dumps.begin()
    processes = ""
    deadline = time.monotonic() + 30
    while not (log := dumps.container.run("cat /tmp/log 2>/dev/null || true")):
        assert time.monotonic() < deadline
        processes += dumps.container.run(
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'", "root"
        )

    assert "mariadb-dump" in processes
    assert PASSWORD not in processes + log


# --- A store behind S3 ---------------------------------------------------------------------------


@pytest.fixture
def bucket(cluster: Cluster, tmp_path: Path) -> Dumps:
    server = s3.serve(cluster.start)
    (tmp_path / "ca.pem").write_text(server.certificate)

    def use(backup: dict[str, Any]) -> None:
        backup["s3"] = {
            "endpoint": f"https://{s3.HOST}:{s3.PORT}",
            "bucket": s3.BUCKET,
            "prefix": "hpc",
            "secret": "s3",
            "ca": "ca.pem",
        }

    dumps = dumping(
        cluster.start,
        cluster.database,
        use,
        root=tmp_path,
        extra_hosts={s3.HOST: server.address},
    )
    s3.give(dumps.container.container, "some-key", "some-secret")
    return dumps


def test_dump_in_a_bucket_can_be_restored(cluster: Cluster, bucket: Dumps, empty: Database) -> None:
    first, second = bucket.dump(), bucket.dump()

    code, output = with_database(bucket, empty).run("restore", SNAPSHOT=first)

    assert (code, output) == (0, f"restore: loaded dump '{first}' into slurm_acct_db")
    assert first != second
    tables = "SHOW TABLES FROM slurm_acct_db"
    assert empty.sql(tables) == cluster.database.sql(tables) != ""


def test_error_about_an_unavailable_bucket_has_one_line(bucket: Dumps) -> None:
    repository = f"s3:https://{s3.HOST}:{s3.REFUSING}/{s3.BUCKET}"
    code, output = bucket.run(RESTIC_REPOSITORY=repository)
    assert (code, len(output.splitlines())) == (1, 1), output
    assert output.startswith("backup: cannot open the store s3:https://")
    assert "Access Key" in output
    assert "some-secret" not in output

    bucket.container.run(f"rm {c.ACCOUNTING_ETC}/store-ca.pem", "root")
    code, output = bucket.run()
    assert (code, len(output.splitlines())) == (1, 1), output
    assert "certificate" in output

    code, output = bucket.run("restore", SNAPSHOT="latest")
    assert code == 0, "restore needs no store if the database already has tables"
