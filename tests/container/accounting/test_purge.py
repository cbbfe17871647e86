"""slurmdbd purges old records. If an archive is configured, it archives them first."""

from collections.abc import Iterator

import pytest

from components import conventions as c
from tests.support.accounting import Cluster, accounted
from tests.support.waiting import eventually

DAYS = 86400
OLD = "UPDATE test_job_table SET " + ", ".join(
    f"time_{what} = time_{what} - {3 * DAYS}" for what in ("submit", "eligible", "start", "end")
)
TWO_HOURS_AGO = (
    "DELETE FROM test_last_ran_table; INSERT INTO test_last_ran_table "
    "SELECT t, t, t FROM (SELECT UNIX_TIMESTAMP() - 7200 AS t) AS ago"
)
"""SQL that makes slurmdbd sum up the usage of past hours when it starts. slurmdbd then purges old
records."""


@pytest.fixture
def purging(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster whose slurmdbd, after its next start, purges jobs that are older than a day."""
    given = {"purge": {"jobs": "24hours"}, "archive": {"size": "1GiB"}}
    cluster.dbd.install(accounted(lambda values: values.update(accounting=given)))
    cluster.dbd.container.run(f"install -d -o slurm {c.DBD_ARCHIVE}", "root")
    yield cluster
    cluster.dbd.stop()
    cluster.dbd.install(accounted())
    cluster.dbd.start()


def test_purged_job_can_be_loaded_from_the_archive(purging: Cluster) -> None:
    cluster = purging
    old, young = (cluster.user("sbatch --parsable -o /dev/null --wrap true") for _ in range(2))

    def states(job: str) -> list[tuple[str, ...]]:
        return cluster.records("State", where=f"--allusers -S now-30days -j {job}")

    done = [("COMPLETED",)]
    eventually("both jobs are on record", lambda: states(old) == states(young) == done)
    cluster.dbd.stop()
    cluster.database.sql(f"USE slurm_acct_db; {OLD} WHERE id_job = {old}; {TWO_HOURS_AGO}")

    cluster.dbd.start()

    eventually("the old job is purged", lambda: states(old) == [])
    assert states(young) == done
    archive = f"{c.DBD_ARCHIVE}/test_job_table_archive_*"
    load = f"SLURM_CONF={c.DBD_RUN}/slurm.conf sacctmgr -i archive load file=$(ls {archive})"
    cluster.dbd.container.run(load)
    eventually("the old job is loaded again", lambda: states(old) == done)
