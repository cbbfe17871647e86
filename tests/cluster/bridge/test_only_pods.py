"""Slurm gives the GPUs of a node that runs only pods to pods, and no job of a user runs there.

The kubelet believes that the machine has GPUs. The pods get no devices.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.bridge.lab import GANG, ONLY_PODS, Lab

GPU = "nvidia.com/gpu"
TOLERATIONS = [{"key": ONLY_PODS, "operator": "Exists"}]


@pytest.fixture
def gpus(lab: Lab) -> Iterator[Lab]:
    """The machine of the node `gpus-0` has two GPUs."""
    with lab.devices(GPU, number=2, nodes=("gpus-0",)):
        yield lab
        lab.clear()


def trains(lab: Lab, name: str, **more: Any) -> dict[str, Any]:
    """Return a pod with a GPU."""
    return lab.manifest(name, devices={GPU: "1"}, tolerations=TOLERATIONS, **more)


def test_pods_get_gpus_until_none_is_left(gpus: Lab) -> None:
    names = ("one", "two", "three")
    for name in names:
        gpus.create(trains(gpus, name))
        gpus.job(name)
    for name in names[:2]:
        gpus.wait_for(name)
        assert gpus.machine(name) == gpus.machine_of("gpus-0")
        tres = gpus.shown(gpus.job(name), "AllocTRES")[0].split(",")
        assert "gres/gpu=1" in tres
    gpus.wait_for_message("three", "Resources")

    gpus.delete("one")
    gpus.wait_for("three")


def test_gang_gets_all_gpus_of_a_machine_or_none(gpus: Lab) -> None:
    gpus.create(trains(gpus, "first"))
    gpus.wait_for("first")
    for name in ("one", "two"):
        gpus.create(trains(gpus, name, **GANG))
    gpus.wait_for_message("two", "Resources")
    assert (gpus.machine("one"), gpus.machine("two")) == ("", "")

    gpus.delete("first")
    for name in ("one", "two"):
        gpus.wait_for(name)


def test_jobs_of_users_are_refused_where_only_pods_run(lab: Lab) -> None:
    hold = "sbatch --parsable --hold --wrap=true"
    for command in (
        "srun --partition=pods true",
        "sbatch --partition=main,pods --wrap=true",
        f"job=$({hold}); scontrol update job $job partition=pods",
    ):
        answer = lab.cluster.ssh(command, check=False, timeout=60)
        assert answer.returncode != 0
        assert "only pods may use the partition 'pods'" in answer.stderr


def test_reservation_lets_no_job_of_a_user_run_where_only_pods_run(lab: Lab) -> None:
    """Slurm would take the partition of the reservation for a job without a partition."""
    reservation = (
        *("scontrol", "create", "reservation", "reservationname=only", "users=researcher"),
        *("partition=pods", "nodes=gpus-0", "starttime=now", "duration=5"),
    )
    lab.cluster.operate(*reservation)
    try:
        submit = "sbatch --reservation=only --output=/dev/null --wrap='sleep 60'"
        said = lab.cluster.ssh(f"{submit}; {submit} --partition=pods", check=False, timeout=60)
        time.sleep(4)
        assert "only pods may use the partition" in said.stderr
        assert "gpus-0" not in lab.cluster.run("squeue --noheader --states=RUNNING --format=%N")
    finally:
        lab.cluster.run("scancel --me")
        lab.cluster.operate("scontrol", "delete", "reservationname=only")


def test_script_of_the_site_still_judges_jobs(lab: Lab) -> None:
    answer = lab.cluster.ssh("srun --job-name=forbidden true", check=False, timeout=60)
    assert answer.returncode != 0
    assert "the site forbids this name" in answer.stderr
    lab.cluster.run("srun true")


def test_user_starts_no_program_where_only_pods_run(gpus: Lab) -> None:
    gpus.create(trains(gpus, "train"))
    gpus.wait_for("train")
    job = gpus.job("train")

    answer = gpus.cluster.ssh(f"srun --jobid={job} --overlap id", check=False, timeout=60)

    assert answer.returncode != 0
    assert "uid=" not in answer.stdout
    gpus.wait_for_state(job, "RUNNING")
