"""A deploy restores all accounting records from a dump, and adds users that the dump lacks."""

from typing import Any

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

RECORDS = (
    "sacct --allusers --duplicates --parsable2 "
    "--format=jobid,jobname,user,account,state,exitcode,alloctres,nodelist,submit,start,end"
)


def associations(cluster: Cluster) -> set[str]:
    return set(cluster.run("sacctmgr --noheader --parsable2 show associations").splitlines())


def restored(values: dict[str, Any]) -> None:
    accounting = values["accounting"]
    accounting["backup"] = {**accounting.get("backup", {}), "restore": "latest"}


def test_backup_restores_all_records_and_accounts(accounts: Cluster, folder: str) -> None:
    jobs = [
        accounts.submit(folder, "#!/bin/sh\ntrue", "--array=1-3"),
        accounts.submit(folder, "#!/bin/sh\nexit 3"),
    ]
    ended = f"sacct --noheader --allocations --format=state --jobs={','.join(map(str, jobs))}"
    eventually(
        "sacct shows that the jobs have ended",
        lambda: sorted(accounts.run(ended).split()) == [*["COMPLETED"] * 3, "FAILED"],
    )
    records, known = accounts.run(RECORDS), associations(accounts)
    # Delete the user 'student' from the accounting before the dump, so that the dump lacks this
    # user. The deploy that restores the dump must add the user again.
    forget = ("sacctmgr", "--immediate", "delete", "user", "student")
    accounts.operate(*forget)

    accounts.kubectl("create", "job", "--from=cronjob/accounting-backup", "now")
    accounts.kubectl("wait", "--for=condition=complete", "--timeout=120s", "job/now", timeout=150)
    accounts.kubectl("scale", "deployment/accounting", "--replicas=0")
    eventually("slurmdbd has stopped", lambda: not accounts.pods("accounting"))
    drop = "mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -e 'DROP DATABASE slurm_acct_db'"
    accounts.in_pod("database-0", "mariadb", "sh", "-c", drop)
    with accounts.edited(restored):
        accounts.deploy("up")
        assert accounts.run(RECORDS) == records
        assert associations(accounts) == known

    accounts.deploy("up")
    accounts.kubectl("delete", "job", "now")
    accounts.run("srun true")
    assert accounts.run(RECORDS).startswith(records)
