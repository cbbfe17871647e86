"""An edit of Slurm's configuration reaches every daemon; one that would do harm reaches none."""

from typing import Any

import pytest

from tests.cluster.errors import error_line
from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def add_a_partition(values: dict[str, Any]) -> None:
    values["partitions"] = [
        {"name": "main", "nodesets": ["cpu"], "default": True},
        {"name": "second", "nodesets": ["cpu"]},
    ]


def mark(text: str) -> str:
    """The word by which a configuration is known, in a file or an answer of `scontrol`."""
    line = next(line for line in text.splitlines() if line.startswith("SlurmctldParameters"))
    return line.rpartition(",")[2].strip()


def test_an_edit_reaches_every_daemon_and_restarts_none(cluster: Cluster, folder: str) -> None:
    jobs = [
        cluster.submit(folder, f"#!/bin/sh\nsleep 300; echo {i}", f"--nodelist=cpu-{i}")
        for i in range(2)
    ]
    for job in jobs:
        cluster.wait_for_job(job, "RUNNING")
    every_pod = (cluster.controller(), "cpu-0", "cpu-1", "login-0")
    pods = {pod: cluster.pod_uid(pod) for pod in every_pod}
    restarts = cluster.restarts(*every_pod)

    with cluster.edited(add_a_partition):
        cluster.deploy("up")

        assert "second" in cluster.run("sinfo --noheader --format=%R").split()
        in_force = mark(cluster.run("scontrol show config"))
        fetched = {
            "cpu-0": ("slurmd", "/var/spool/slurmd/conf-cache/slurm.conf"),
            "cpu-1": ("slurmd", "/var/spool/slurmd/conf-cache/slurm.conf"),
            "login-0": ("sackd", "/run/slurm/conf/slurm.conf"),
        }
        for pod, (container, path) in fetched.items():
            eventually(
                f"{pod} has the new configuration",
                lambda: mark(cluster.in_pod(pod, container, "cat", path)) == in_force,  # noqa: B023
            )
        assert cluster.run("srun --partition=second --overcommit hostname").startswith("cpu-")
        assert [cluster.job_state(job) for job in jobs] == ["RUNNING", "RUNNING"]
    cluster.deploy("up")

    assert cluster.run("sinfo --noheader --format=%R") == "main"
    assert [cluster.job_state(job) for job in jobs] == ["RUNNING", "RUNNING"]
    assert {pod: cluster.pod_uid(pod) for pod in every_pod} == pods
    assert cluster.restarts(*every_pod) == restarts


@pytest.fixture
def with_second_partition(cluster: Cluster) -> Any:
    with cluster.edited(add_a_partition):
        cluster.deploy("up")
        yield
    cluster.deploy("up")


@pytest.mark.usefixtures("with_second_partition")
def test_a_partition_with_jobs_is_not_removed(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--partition=second")
    cluster.wait_for_job(job, "RUNNING")

    with cluster.edited(lambda values: values["partitions"].pop()):
        refused = error_line(cluster.deploy("up", check=False))

    assert "partition second" in refused
    assert "has jobs (1)" in refused
    assert "second" in cluster.run("sinfo --noheader --format=%R").split()
    assert cluster.job_state(job) == "RUNNING"
    cluster.run(f"scancel {job}")


def test_a_cluster_keeps_its_name(cluster: Cluster) -> None:
    with cluster.edited(lambda values: values.update(cluster_name="other")):
        refused = error_line(cluster.deploy("up", check=False))

    assert "cluster_name: other" in refused
    assert cluster.run("scontrol show config | grep ^ClusterName").split()[-1] == cluster.stack
