"""A valid edit of Slurm's configuration reaches every daemon, and an invalid edit reaches none."""

import json
from typing import Any

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
    """Return the last word of SlurmctldParameters, which identifies a configuration.

    `text` is slurm.conf or the output of `scontrol show config`.
    """
    line = next(line for line in text.splitlines() if line.startswith("SlurmctldParameters"))
    return line.rpartition(",")[2].strip()


def test_partition_edit_reaches_every_daemon_and_spares_jobs(cluster: Cluster, folder: str) -> None:
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
        assert nodes == {in_force}, "every slurmd uses the new configuration when the deploy ends"
        eventually(
            "login has the new configuration",
            lambda: (
                mark(cluster.in_pod("login-0", "sackd", "cat", "/run/slurm/conf/slurm.conf"))
                == in_force
            ),
        )
        assert cluster.run("srun --partition=second --overcommit hostname").startswith("cpu-")

        in_second = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--partition=second")
        cluster.wait_for_job(in_second, "RUNNING")
        with cluster.edited(lambda values: values["partitions"].pop()):
            refused = error_line(cluster.deploy("up", check=False))
        assert "partition second" in refused
        assert "has jobs (1)" in refused
        assert "second" in cluster.run("sinfo --noheader --format=%R").split()
        assert cluster.job_state(in_second) == "RUNNING"
        cluster.run(f"scancel {in_second}")
        assert [cluster.job_state(job) for job in jobs] == ["RUNNING", "RUNNING"]
    cluster.deploy("up")

    assert cluster.run("sinfo --noheader --format=%R") == "main"
    assert [cluster.job_state(job) for job in jobs] == ["RUNNING", "RUNNING"]
    assert {pod: cluster.pod_uid(pod) for pod in every_pod} == pods
    assert cluster.restarts(*every_pod) == restarts


def test_nodes_get_the_configuration_when_slurmctld_starts(cluster: Cluster) -> None:
    """One deploy may both replace slurmctld's pod and change the configuration.

    Then the new slurmctld must send the configuration to the nodes when it starts.
    """
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
        "the original configuration is back",
        lambda: "# another" not in cluster.in_pod("cpu-0", "slurmd", "cat", cache),
        150,
    )


def replace(cluster: Cluster, config: dict[str, Any], text: str) -> None:
    """Apply the ConfigMap with `text` as slurm.conf.

    Use the deploy's field manager. Another field manager would own the changed fields, which would
    be a conflict in the next deploy.
    """
    metadata = config["metadata"]
    (owner,) = (by["manager"] for by in metadata["managedFields"] if by["operation"] == "Apply")
    config = {
        **config,
        "metadata": {
            key: metadata[key] for key in ("name", "labels", "annotations") if key in metadata
        },
        "data": {**config["data"], "slurm.conf": text},
    }
    apply = ("apply", "--server-side", f"--field-manager={owner}", "--filename=-")
    cluster.kubectl(*apply, stdin=json.dumps(config))


def test_deploy_reports_nodes_whose_slurmd_cannot_start(cluster: Cluster) -> None:
    broken = {
        # Name a missing task plugin. slurmctld does not load task plugins, so only slurmd fails.
        "slurm": {"extra": {"slurm.conf": ["TaskPlugin=task/missing"]}},
        "reconciler": {"rollout": 45},
    }
    try:
        with cluster.edited(lambda values: values.update(broken)):
            output = cluster.deploy("up").stdout

        assert "0 of 2 nodes are in service" in output
        assert "cpu-0: pod: slurmd: CrashLoopBackOff" in output
    finally:
        cluster.deploy("up")
        cluster.wait_for_nodes("cpu-0", "cpu-1", timeout=180)


def test_cluster_name_cannot_change(cluster: Cluster) -> None:
    with cluster.edited(lambda values: values.update(cluster_name="other")):
        refused = error_line(cluster.deploy("up", check=False))

    assert "cluster_name: other" in refused
    assert cluster.run("scontrol show config | grep ^ClusterName").split()[-1] == cluster.stack
