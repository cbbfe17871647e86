"""Accounting commands of an ordinary user, from login and in jobs."""

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import eventually

COMMANDS = (
    "sacct --allocations",
    "sreport cluster utilization",
    "sreport user top",
    "sshare",
    "sacctmgr show user",
    "sacctmgr show associations",
    "sacctmgr show qos",
    "sacctmgr show cluster",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("where", ["", "srun "])
def test_user_can_run_accounting_commands(cluster: Cluster, command: str, where: str) -> None:
    assert cluster.run(f"{where}{command}") != ""


def test_ordinary_user_cannot_change_accounts(cluster: Cluster) -> None:
    asked = cluster.ssh("sacctmgr --immediate add account mine", check=False)

    assert asked.returncode != 0
    assert cluster.run("sacctmgr -n -P show account mine") == ""


def test_sacct_shows_a_job_two_seconds_after_its_end(cluster: Cluster) -> None:
    job = cluster.run("sbatch --parsable --wait --output=/dev/null --wrap true")

    ask = f"sacct -X -n -P -j {job} --format=State,ExitCode"
    eventually("sacct shows the job", lambda: cluster.run(ask) == "COMPLETED|0:0", timeout=2)
