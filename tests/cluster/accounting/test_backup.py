"""Loading a dump into an empty database restores all records."""

from typing import Any

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

RECORDS = (
    "sacct --allusers --duplicates --parsable2 "
    "--format=jobid,jobname,user,account,state,exitcode,alloctres,nodelist,submit,start,end"
)
ACCOUNTS = "sacctmgr --noheader --parsable2 show associations"


def restored(values: dict[str, Any]) -> None:
    accounting = values["accounting"]
    accounting["backup"] = {**accounting.get("backup", {}), "restore": "latest"}


def test_backup_restores_all_records(cluster: Cluster, folder: str) -> None:
    jobs = [
        cluster.submit(folder, "#!/bin/sh\ntrue", "--array=1-3"),
        cluster.submit(folder, "#!/bin/sh\nexit 3"),
    ]
    ended = f"sacct --noheader --allocations --format=state --jobs={','.join(map(str, jobs))}"
    eventually(
        "sacct shows that the jobs have ended",
        lambda: sorted(cluster.run(ended).split()) == [*["COMPLETED"] * 3, "FAILED"],
    )
    before = [cluster.run(RECORDS), cluster.run(ACCOUNTS)]

    cluster.kubectl("create", "job", "--from=cronjob/accounting-backup", "now")
    cluster.kubectl("wait", "--for=condition=complete", "--timeout=120s", "job/now", timeout=150)
    cluster.kubectl("scale", "deployment/accounting", "--replicas=0")
    eventually("slurmdbd has stopped", lambda: not cluster.pods("accounting"))
    drop = "mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -e 'DROP DATABASE slurm_acct_db'"
    cluster.in_pod("database-0", "mariadb", "sh", "-c", drop)
    with cluster.edited(restored):
        cluster.deploy("up")
        assert [cluster.run(RECORDS), cluster.run(ACCOUNTS)] == before

    cluster.deploy("up")
    cluster.kubectl("delete", "job", "now")
    cluster.run("srun true")
    assert cluster.run(RECORDS).startswith(before[0])
