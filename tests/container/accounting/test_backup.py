"""Dumps of the database, and what comes of them when they are loaded."""

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
TOLD = (
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
"""Steps of jobs that nobody knows."""
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}


def told(dbd: Dbd, *commands: str) -> list[str]:
    """What Slurm's commands print, asking this slurmdbd."""
    slurm = f"export SLURM_CONF={c.DBD_RUN}/slurm.conf; "
    return [dbd.container.run(slurm + command) for command in commands or TOLD]


@pytest.fixture
def dumps(cluster: Cluster) -> Dumps:
    return dumping(cluster.start, cluster.database)


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Database]:
    """Another database, with nothing in it."""
    database = start_database(cluster.start, tmpfs={c.DATABASE_DATA: ""})
    database.start()
    yield database
    database.container.container.kill()


def slurmdbd_of(cluster: Cluster, database: Database) -> Dbd:
    """A further slurmdbd, which asks this database; not started."""
    secret = cluster.dbd.container.run("cat /tmp/secret", "root")
    dbd = start_dbd(cluster.start, secret, database)
    dbd.install(accounted())
    passwd = cluster.dbd.container.run(f"cat {c.EXTRAUSERS}/passwd", "root")
    dbd.container.run(f"mkdir -p {c.EXTRAUSERS}; echo '{passwd}' >{c.EXTRAUSERS}/passwd", "root")
    return dbd


def loading(dumps: Dumps, database: Database) -> Dumps:
    """The same store, and another database."""
    container = dumps.container
    container.run(
        f"sed -i s/^host=.*/host={database.container.address}/ {c.ACCOUNTING_ETC}/client.cnf",
        "root",
    )
    return dumps


def ended(records: list[tuple[str, ...]]) -> set[tuple[str, ...]]:
    return {record for record in records if record[1].split()[0] in ENDED}


def test_a_dump_under_load_loads_as_the_same_records(
    cluster: Cluster, dumps: Dumps, empty: Database
) -> None:
    fields = ("JobIDRaw", "State", "Submit", "Start", "End", "ExitCode", "AllocTRES")
    load = 'cd /tmp; for i in $(seq 60); do sbatch -Q -o /dev/null --wrap "exit $((i % 3))"; done'
    cluster.worker.container.exec_run(["bash", "-c", load], user="2000:2000", detach=True)
    eventually("jobs end", lambda: len(ended(cluster.records(*fields))) > 5)
    before = ended(cluster.records(*fields))

    name = dumps.dump()

    eventually("the queue is empty", lambda: not cluster.slurmctld.run("squeue -h"))
    code, said = loading(dumps, empty).run("restore", SNAPSHOT=name)
    assert (code, "loaded dump" in said) == (0, True), said
    dbd = slurmdbd_of(cluster, empty)
    dbd.start()
    command = f"sacct -X -n -P --allusers --format={','.join(fields)}"
    loaded = ended([tuple(line.split("|")) for line in told(dbd, command)[0].splitlines()])
    assert before <= loaded, "what had ended before is there"
    eventually("all is on record", lambda: loaded <= ended(cluster.records(*fields)))
    assert empty.sql(f"USE slurm_acct_db; {ORPHANS}") == "0"


def test_what_slurm_tells_of_the_past_is_the_same_after_a_restore(
    cluster: Cluster, dumps: Dumps, empty: Database
) -> None:
    cluster.slurmctld.run("sacctmgr -i add account physics description=d organization=o || true")
    cluster.slurmctld.run("sacctmgr -i add user researcher account=physics fairshare=7 || true")
    cluster.user("sbatch --parsable --wait -o /dev/null -J 'ünï code' --wrap 'srun hostname'")
    cluster.user("sbatch --parsable --wait -o /dev/null --wrap 'exit 3' || true", "student")
    eventually("nothing is under way", lambda: not ended_is_missing(cluster))
    expected = told(cluster.dbd)

    dumps.dump()
    loading(dumps, empty).run("restore", SNAPSHOT="latest")
    dbd = slurmdbd_of(cluster, empty)
    dbd.start()

    for command, old, new in zip(TOLD, expected, told(dbd), strict=True):
        assert old, command
        assert new == old, command


def ended_is_missing(cluster: Cluster) -> bool:
    states = cluster.records("JobIDRaw", "State", "End")
    return any(state.split()[0] not in ENDED or end == "Unknown" for _, state, end in states)


def test_nothing_is_loaded_over_what_is_there(cluster: Cluster, dumps: Dumps) -> None:
    eventually("nothing is under way", lambda: not ended_is_missing(cluster))
    dumps.dump()
    expected = told(cluster.dbd)

    code, said = dumps.run("restore", SNAPSHOT="latest")

    assert code == 0
    assert said == "restore: slurm_acct_db already has tables: no dump is loaded"
    assert told(cluster.dbd) == expected


def test_a_load_that_is_cut_short_keeps_slurmdbd_out_and_is_begun_anew(
    cluster: Cluster, dumps: Dumps, empty: Database
) -> None:
    dumps.dump()
    tables = cluster.database.sql("SHOW TABLES FROM slurm_acct_db").split()
    loading(dumps, empty)
    half = ("slurmstack_restore", tables[3])
    empty.sql("; ".join(f"CREATE TABLE slurm_acct_db.{table} (a INT)" for table in half))
    dbd = slurmdbd_of(cluster, empty)
    dbd.begin()
    eventually("it says why", lambda: "was interrupted" in dbd.log())
    assert len(dbd.log().splitlines()) == 1

    code, said = dumps.run("restore", SNAPSHOT="latest")

    assert code == 0, said
    assert said.splitlines()[0] == "restore: the last load was interrupted: loading again"
    assert empty.sql("SHOW TABLES FROM slurm_acct_db").split() == tables
    dbd.start()


@pytest.mark.parametrize("pause", [0.3, 0.6, 1.0, 1.5])
def test_who_is_killed_in_a_load_leaves_nothing_that_slurmdbd_would_take(
    cluster: Cluster, dumps: Dumps, empty: Database, pause: float
) -> None:
    dumps.dump()
    loading(dumps, empty).begin("restore", SNAPSHOT="latest")
    time.sleep(pause)
    dumps.kill()

    found = empty.sql("SHOW TABLES FROM slurm_acct_db").split()
    expected = cluster.database.sql("SHOW TABLES FROM slurm_acct_db").split()
    assert not found or "slurmstack_restore" in found or found == expected

    assert dumps.run("restore", SNAPSHOT="latest")[0] == 0
    assert empty.sql("SHOW TABLES FROM slurm_acct_db").split() == expected


def test_only_so_many_dumps_are_kept(dumps: Dumps) -> None:
    keep = {"KEEP": "--keep-last=2"}
    made = []
    for _ in range(4):
        code, said = dumps.run(**keep)
        assert code == 0
        made.append(said.split()[2])

    assert dumps.names() == made[-2:]
    assert said.endswith("; dumps in the store: 2")


def test_a_dump_that_is_killed_does_not_count_and_harms_no_other(dumps: Dumps) -> None:
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
    """A database of 36 MiB that nothing makes smaller."""
    cluster.database.sql(NOISE)
    yield "noise"
    cluster.database.sql("DROP DATABASE noise")


def test_a_full_store_is_told_in_one_line_and_keeps_what_it_has(
    cluster: Cluster, noise: str
) -> None:
    dumps = dumping(cluster.start, cluster.database, tmpfs=small(20))
    first = dumps.dump()

    for _ in range(3):
        code, said = dumps.run(DATABASE=noise)

        assert code != 0
        assert said.startswith("backup: cannot dump noise: ")
        assert said.endswith("no space left on device")
        assert len(said.splitlines()) == 1
        assert dumps.names() == [first]
    assert dumps.dump() == dumps.names()[-1], "what the half dumps took is free again"


def test_a_store_without_any_room_is_told_in_one_line(cluster: Cluster) -> None:
    dumps = dumping(cluster.start, cluster.database, tmpfs=small(20))
    first = dumps.dump()
    ballast = f"{c.BACKUP_DATA}/ballast"
    dumps.container.run(f"cat /dev/zero >{ballast} || true", "slurm")

    code, said = dumps.run()

    assert (code, len(said.splitlines())) == (1, 1), said
    assert said.startswith("backup: ")
    assert said.endswith("no space left on device")
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
    ids=["wrong password", "unknown host", "nobody there"],
)
def test_a_database_that_cannot_be_asked_is_told_in_one_line(
    cluster: Cluster, changes: dict[str, Any], expected: str
) -> None:
    dumps = dumping(cluster.start, **{"database": cluster.database, **changes})
    # Who asks for a name learns at once that there is none.
    dumps.container.run("echo nameserver 127.0.0.1 >/etc/resolv.conf", "root")

    code, said = dumps.run()

    assert (code, len(said.splitlines())) == (1, 1), said
    assert said.startswith("backup: cannot dump slurm_acct_db: ")
    assert expected in said
    assert "wrong" not in said, "the password"
    assert dumps.names() == []


def test_no_dump_is_told_in_one_line(cluster: Cluster, dumps: Dumps, empty: Database) -> None:
    loading(dumps, empty)
    code, said = dumps.run("restore", SNAPSHOT="latest")
    assert (code, len(said.splitlines())) == (1, 1), said
    assert said.startswith(f"restore: cannot open the store {c.BACKUP_DATA}/test: ")

    loading(dumps, cluster.database).dump()
    code, said = loading(dumps, empty).run("restore", SNAPSHOT="1f2e3d4c")
    assert (code, said) == (1, f"restore: no dump '1f2e3d4c' of test in {c.BACKUP_DATA}/test")
    assert empty.sql("SHOW TABLES FROM slurm_acct_db") == ""


def test_dumps_are_read_with_their_password_alone(cluster: Cluster) -> None:
    dumps = dumping(cluster.start, cluster.database)
    password = f"{c.BACKUP_PASSWORD}/password"
    put(dumps.container.container, {password: "open-sesame"})
    assert dumps.run()[0] == 0
    put(dumps.container.container, {password: "wrong"})

    code, said = dumps.run()

    assert (code, len(said.splitlines())) == (1, 1), said
    assert "wrong password" in said


def test_no_credential_is_seen_among_processes_or_in_a_log(dumps: Dumps) -> None:
    dumps.begin()
    seen = ""
    deadline = time.monotonic() + 30
    while not (log := dumps.container.run("cat /tmp/log 2>/dev/null || true")):
        assert time.monotonic() < deadline
        seen += dumps.container.run(
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'", "root"
        )

    assert "mariadb-dump" in seen
    assert PASSWORD not in seen + log


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


def test_a_bucket_holds_dumps_that_load(cluster: Cluster, bucket: Dumps, empty: Database) -> None:
    first, second = bucket.dump(), bucket.dump()

    code, said = loading(bucket, empty).run("restore", SNAPSHOT=first)

    assert (code, said) == (0, f"restore: loaded dump '{first}' into slurm_acct_db")
    assert first != second
    tables = "SHOW TABLES FROM slurm_acct_db"
    assert empty.sql(tables) == cluster.database.sql(tables) != ""


def test_a_bucket_that_cannot_be_had_is_told_in_one_line(bucket: Dumps) -> None:
    refusing = f"s3:https://{s3.HOST}:{s3.REFUSING}/{s3.BUCKET}"
    code, said = bucket.run(RESTIC_REPOSITORY=refusing)
    assert (code, len(said.splitlines())) == (1, 1), said
    assert said.startswith("backup: cannot open the store s3:https://")
    assert "Access Key" in said
    assert "some-secret" not in said

    bucket.container.run(f"rm {c.ACCOUNTING_ETC}/store-ca.pem", "root")
    code, said = bucket.run()
    assert (code, len(said.splitlines())) == (1, 1), said
    assert "certificate" in said

    code, said = bucket.run("restore", SNAPSHOT="latest")
    assert code == 0, "a database with tables needs no store"
