"""An edit of Slurm's configuration reaches every daemon; one that would do harm reaches none."""

import json
from typing import Any

import pytest

from components import conventions as c
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
        cache = "/var/spool/slurmd/conf-cache/slurm.conf"
        nodes = {mark(cluster.in_pod(f"cpu-{i}", "slurmd", "cat", cache)) for i in range(2)}
        assert nodes == {in_force}, "the deploy ends after slurmd has started with it"
        eventually(
            "login has the new configuration",
            lambda: (
                mark(cluster.in_pod("login-0", "sackd", "cat", "/run/slurm/conf/slurm.conf"))
                == in_force
            ),
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


def test_a_controller_that_starts_tells_nodes_its_configuration(cluster: Cluster) -> None:
    """As where one deploy changes both, its pod and the configuration."""
    (config,) = (
        one for one in cluster.objects("configmaps") if one["metadata"]["name"] == c.SLURM_CONFIG
    )
    original = config["data"]["slurm.conf"]
    try:
        replace(cluster, config, f"{original}# another one\n")
        cluster.kubectl("delete", "pod", cluster.controller(), timeout=120)

        cache = "/var/spool/slurmd/conf-cache/slurm.conf"
        for node in ("cpu-0", "cpu-1"):
            eventually(
                f"{node} has the configuration",
                lambda: "# another one" in cluster.in_pod(node, "slurmd", "cat", cache),  # noqa: B023
            )
    finally:
        replace(cluster, config, original)
    eventually(
        "it is as before",
        lambda: "# another" not in cluster.in_pod("cpu-0", "slurmd", "cat", cache),
        150,
    )


def replace(cluster: Cluster, config: dict[str, Any], text: str) -> None:
    """As whoever deploys, so that the next deploy finds nobody else's fields."""
    known = config["metadata"]
    (owner,) = (by["manager"] for by in known["managedFields"] if by["operation"] == "Apply")
    config = {
        **config,
        "metadata": {key: known[key] for key in ("name", "labels", "annotations") if key in known},
        "data": {**config["data"], "slurm.conf": text},
    }
    apply = ("apply", "--server-side", f"--field-manager={owner}", "--filename=-")
    cluster.kubectl(*apply, stdin=json.dumps(config))


def test_nodes_whose_slurmd_cannot_start_are_not_in_service(cluster: Cluster) -> None:
    broken = {
        # slurmctld loads no plugin of this kind.
        "slurm": {"extra": {"slurm.conf": ["TaskPlugin=task/missing"]}},
        "reconciler": {"rollout": 60},
    }
    try:
        with cluster.edited(lambda values: values.update(broken)):
            said = cluster.deploy("up").stdout

        assert "0 of 2 nodes are in service" in said
        assert "cpu-0: pod: slurmd: CrashLoopBackOff" in said
    finally:
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)


def test_a_cluster_keeps_its_name(cluster: Cluster) -> None:
    with cluster.edited(lambda values: values.update(cluster_name="other")):
        refused = error_line(cluster.deploy("up", check=False))

    assert "cluster_name: other" in refused
    assert cluster.run("scontrol show config | grep ^ClusterName").split()[-1] == cluster.stack
