"""What an ordinary user asks of accounting, from login and in jobs."""

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
def test_a_command_answers(cluster: Cluster, command: str, where: str) -> None:
    assert cluster.run(f"{where}{command}") != ""


def test_an_ordinary_user_changes_nothing(cluster: Cluster) -> None:
    asked = cluster.ssh("sacctmgr --immediate add account mine", check=False)

    assert asked.returncode != 0
    assert cluster.run("sacctmgr -n -P show account mine") == ""


def test_the_first_job_is_on_record_within_two_seconds_of_its_end(cluster: Cluster) -> None:
    job = cluster.run("sbatch --parsable --wait --output=/dev/null --wrap true")

    ask = f"sacct -X -n -P -j {job} --format=State,ExitCode"
    eventually("it is on record", lambda: cluster.run(ask) == "COMPLETED|0:0", timeout=2)
