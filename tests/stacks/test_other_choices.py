"""A stack made with the other choices: Slurm's own keys instead of munge, and one controller."""

import datetime
import time
from collections.abc import Iterator

import pytest

from tests.conftest import Deployed
from tests.e2e.cluster import Cluster, eventually, local_cluster, write_stack

KEYS = "cat /etc/auth-secret/* /run/slurm-keys/*"


@pytest.fixture(scope="module")
def second(deployed: Deployed) -> Iterator[Cluster]:
    stack = write_stack(
        "test-other",
        cluster=local_cluster(2, api_port=18443, ssh_port=14222),
        controller={"state_size": "1GiB"},
        auth={"type": "slurm"},
    )
    with deployed(stack):
        yield stack


@pytest.fixture
def folder_of_second(second: Cluster) -> Iterator[str]:
    yield second.run("mktemp -d ~/test-XXXXXX")
    second.run("scancel --user=researcher")


def test_jobs_run_without_a_munged_anywhere(second: Cluster) -> None:
    second.wait_for_nodes("cpu-0", "cpu-1")
    assert second.run("srun --nodes=2 id -un").split() == ["researcher", "researcher"]
    # From within a job, too.
    assert second.run("srun --overlap squeue --noheader --format=%u") == "researcher"
    assert "munge" not in second.kubectl("get", "pods", "-o", "jsonpath={..name}")


def test_the_exporter_reads_slurm_without_munge_as_well(second: Cluster) -> None:
    second.wait_for_nodes("cpu-0", "cpu-1")
    once = ("python3", "-m", "agents.exporter", "--once")
    told = second.in_pod("deploy/exporter", "exporter", *once)
    assert "\nslurm_up 1.0\n" in told
    assert '\nslurm_nodes{state="idle"} 2.0\n' in told


def test_users_reach_no_key_and_replace_no_socket(second: Cluster) -> None:
    for way in ("", "srun "):
        reached = second.ssh(f"{way}sh -c '{KEYS}'", check=False)
        assert reached.stdout == ""
        replaced = second.ssh(f"{way}sh -c 'rm -f /run/slurm/sack.socket'", check=False)
        assert replaced.returncode != 0
    assert second.run("srun hostname")


def test_the_controller_of_a_lost_node_comes_back_at_the_place_that_was_kept(
    second: Cluster, folder_of_second: str
) -> None:
    # Not the node that the Kubernetes API is on.
    second.move_controller("node-1")
    lost = second.controller()
    eventually("a place is kept", lambda: place_kept(second) == ["node-0"])
    running = second.submit(folder_of_second, "#!/bin/sh\nsleep 600", "--nodelist=cpu-0")
    second.submit(folder_of_second, "#!/bin/sh\ntrue", "--hold")
    second.wait_for_job(running, "RUNNING")
    before = second.queue(lost)
    # What slurmdbd has told it, slurmctld writes every five minutes, and when it is to read its
    # configuration again. Without that, it would wait for a slurmdbd which may be lost, too.
    second.in_pod(lost, "slurmctld", "scontrol", "reconfigure")
    # The rest it writes within five seconds of a change, here as on any machine.
    time.sleep(6)

    with second.frozen("node-1"):
        eventually("a controller serves on node-0", lambda: second.serves_on("node-0"), 150)
        assert second.queue(second.controller()) == before

    eventually(
        "only the one on node-0 is left",
        lambda: len(second.controllers()) == 1 and second.serves_on("node-0"),
        120,
    )
    eventually("a place is kept again", lambda: place_kept(second) == ["node-1"])
    assert second.job_state(running) == "RUNNING"


def place_kept(stack: Cluster) -> list[str]:
    """Kubernetes nodes where a place is kept for the controller."""
    return [
        pod["spec"].get("nodeName", "")
        for pod in stack.pods("placeholder")
        if pod["status"]["phase"] == "Running"
    ]


def test_the_type_stays_for_the_life_of_a_stack(second: Cluster) -> None:
    with second.edited(lambda values: values.update(auth={"type": "munge"})):
        refused = second.deploy("up", check=False)
    assert refused.returncode != 0
    assert "auth.type" in refused.stderr + refused.stdout
    assert second.run("srun hostname")


def test_a_rotation_costs_no_job(second: Cluster, folder_of_second: str) -> None:
    moment = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=90)).replace(
        microsecond=0
    )
    running = second.submit(folder_of_second, "#!/bin/sh\nsleep 600", "--nodelist=cpu-0")
    held = second.submit(folder_of_second, "#!/bin/sh\ntrue", "--hold")
    second.wait_for_job(running, "RUNNING")

    def rotate(values: dict[str, object]) -> None:
        values["auth"] = {"type": "slurm", "rotations": [moment.isoformat()]}

    with second.edited(rotate):
        second.deploy("up")
        since = int(moment.timestamp())
        signs = f"the key of {since} signs"
        for pod in ("cpu-0", "cpu-1", "login-0", second.controller()):
            eventually(
                f"{pod} signs by the new key",
                lambda: signs in second.kubectl("logs", pod, "-c", "sackd"),  # noqa: B023
                150,
            )
        reload = ("logs", second.controller(), "-c", "reload")
        eventually(
            "slurmctld was told twice",
            lambda: second.kubectl(*reload).count("has read its configuration again") >= 2,
        )
        assert second.run("srun --nodes=2 --overcommit hostname").split()
        states = [second.job_state(job) for job in (running, held)]
        assert states == ["RUNNING", "PENDING"]
        assert "Restarts=0" in second.run(f"scontrol show job {running}")
