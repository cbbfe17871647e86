"""Kinds and features of nodesets: static or dynamic, scripts, volumes, groups, and removal.

All tests use one stack with a nodeset for each test, because deploying and removing a nodeset takes
more time than a test.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.errors import error_line
from tests.support.cluster import Cluster
from tests.support.nodesets import SMALL, deployed, edit_nodeset, is_idle
from tests.support.waiting import becomes, eventually

_MARK = "#!/bin/sh\ntouch /tmp/{}\n"
SLURM = {
    "prolog": {"text": _MARK.format("prolog-$SLURM_JOB_ID")},
    "epilog": {"text": _MARK.format("epilog-$SLURM_JOB_ID")},
    "task_prolog": {"text": "#!/bin/sh\necho export GREETING=hello\n"},
}
HEALTH = {"script": {"text": _MARK.format("healthy")}, "interval": 10, "node_states": ["any"]}
EQUIPPED = {
    **SMALL,
    "name": "equipped",
    "features": ["fast"],
    "weight": 5,
    "ephemeral_storage": "1GiB",
    "parameters": {"TmpDisk": 100},
    "limits": {"core": "1MiB", "open_files": 2048, "locked_memory": "none"},
    "tolerations": [{"key": "example.org/reserved"}],
    "volumes": [{"name": "data", "path": "/mnt/jail/data", "empty": {"size": "10MiB"}}],
}
NOWHERE = {
    **SMALL,
    "name": "nowhere",
    "kind": "static",
    "replicas": 50,
    "node_selector": {"example.org/pool": "none"},
}
NODESETS: list[dict[str, Any]] = [
    {**SMALL, "name": "fixed", "kind": "static", "replicas": 2},
    EQUIPPED,
    {**SMALL, "name": "elastic"},
    {**SMALL, "name": "doomed", "drain_grace": 60},
    {**SMALL, "name": "brief", "drain_grace": 3},
]
GROUPS = [
    {"name": "lab", "gid": 5000, "members": ["researcher"]},
    {"name": "other", "gid": 5001},
]
PARTITIONS = [
    {"name": "ours", "nodesets": ["cpu"], "allow_groups": ["lab"]},
    {"name": "theirs", "nodesets": ["cpu"], "allow_groups": ["other"]},
    {"name": "main", "nodesets": ["cpu", *(one["name"] for one in NODESETS)], "default": True},
]


@pytest.fixture(scope="module", autouse=True)
def _nodesets(cluster: Cluster) -> Iterator[None]:
    pod = {
        "annotations": {"example.org/network": "fast"},
        "environment": {"GREETING_OF_SLURMD": "hello"},
        "init_containers": [
            {"name": "first", "image": image_of(cluster, "cpu-0"), "command": ["true"]}
        ],
    }
    nodesets = [{**one, "pod": pod} if one is EQUIPPED else one for one in NODESETS]
    more = {"groups": GROUPS, "partitions": PARTITIONS, "slurm": SLURM, "health": HEALTH}
    with deployed(cluster, nodesets=nodesets, **more):
        for node in ("fixed-0", "fixed-1", "equipped-0", "elastic-0", "doomed-0", "brief-0"):
            eventually(f"{node} is idle", is_idle(cluster, node), 90)
        yield


def test_static_node_returns_and_its_job_blocks_its_removal(cluster: Cluster, folder: str) -> None:
    started = cluster.restarts("fixed-0")
    assert started["fixed-0/slurmd"] == 0, "slurmd waits until slurmctld knows the node"
    assert cluster.run("srun --nodelist=fixed-1 hostname") == "fixed-1"

    cluster.kubectl("delete", "pod", "fixed-1", "--grace-period=1")
    eventually("fixed-1 is no longer idle", lambda: cluster.nodes()["fixed-1"] != "idle")
    eventually("fixed-1 is back", is_idle(cluster, "fixed-1"), 90)
    assert cluster.run("srun --nodelist=fixed-1 hostname") == "fixed-1"

    job = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=fixed-1")
    cluster.wait_for_job(job, "RUNNING")
    try:
        with cluster.edited(edit_nodeset("fixed", replicas=1)):
            refused = cluster.deploy("up", check=False)
            assert "cannot remove static nodes: they have jobs (1)" in error_line(refused)
            assert "nodename=fixed-1" in error_line(refused)
            assert cluster.job_state(job) == "RUNNING"

            cluster.run(f"scancel {job}")
            eventually("fixed-1 is idle", is_idle(cluster, "fixed-1"))
            cluster.deploy("up")
            eventually("fixed-1 is gone", lambda: "fixed-1" not in cluster.nodes())
            assert cluster.nodes()["fixed-0"] == "idle"
    finally:
        cluster.deploy("up")


def test_static_nodes_without_pods_do_not_block_slurmctld(cluster: Cluster) -> None:
    def add(values: dict[str, Any]) -> None:
        values["nodesets"].append(NOWHERE)
        values["partitions"][-1]["nodesets"].append("nowhere")

    def absent() -> list[str]:
        return [state for name, state in cluster.nodes().items() if name.startswith("nowhere-")]

    try:
        with cluster.edited(add):
            cluster.deploy("up")
            becomes("the states of the nodes without pods", absent, ["down~"] * 50)
            assert cluster.run("srun --nodes=2 hostname").split()
            latest = cluster.run("time -p scontrol ping 2>&1 | sed -n 's/^real //p'")
            assert float(latest or 0) < 5, (
                "slurmctld does not wait ten seconds per unresolvable name"
            )
    finally:
        cluster.deploy("up")


def test_scripts_volumes_and_limits_of_a_nodeset_reach_its_jobs(cluster: Cluster) -> None:
    output = cluster.run(
        "srun --constraint=fast --chdir=/tmp sh -c "
        "'echo $SLURM_JOB_ID $GREETING $(hostname) $(stat -c %F /data)'"
    )
    job, *rest = output.split(maxsplit=3)
    assert rest == ["hello", "equipped-0", "directory"]
    eventually("the epilog ran", lambda: f"epilog-{job}" in files(cluster))
    assert f"prolog-{job}" in files(cluster)
    eventually("the health check ran", lambda: "healthy" in files(cluster))
    record = cluster.run("scontrol show node equipped-0")
    assert "Weight=5" in record
    assert "TmpDisk=100" in record

    limits = "for limit in c n l; do ulimit -$limit; done"
    assert cluster.run(f"srun --constraint=fast bash -c '{limits}'").split() == [
        *("1024", "2048", "0")
    ]
    assert cluster.run("srun --constraint=fast printenv GREETING_OF_SLURMD || true") == ""
    pod = cluster.pod("equipped-0")
    assert pod
    assert pod["metadata"]["annotations"]["example.org/network"] == "fast"
    assert "site-first" in [each["name"] for each in pod["status"]["initContainerStatuses"]]
    variables = cluster.in_pod("equipped-0", "slurmd", "cat", "/proc/1/environ").split("\0")
    assert "GREETING_OF_SLURMD=hello" in variables

    # An edited script reaches running nodes without a restart of their pods.
    second = {**SLURM, "prolog": {"text": _MARK.format("second-$SLURM_JOB_ID")}}
    uid = cluster.pod_uid("equipped-0")
    with cluster.edited(lambda values: values.update(slurm=second)):
        cluster.deploy("up")
        job = cluster.run("srun --constraint=fast sh -c 'echo $SLURM_JOB_ID'")
        assert f"second-{job}" in files(cluster)
        assert cluster.pod_uid("equipped-0") == uid


def image_of(cluster: Cluster, node: str) -> str:
    """Return the image of a node's slurmd."""
    pod = cluster.pod(node)
    assert pod
    containers = {each["name"]: each for each in pod["spec"]["containers"]}
    return str(containers["slurmd"]["image"])


def files(cluster: Cluster) -> list[str]:
    return cluster.in_pod("equipped-0", "slurmd", "ls", "/tmp").split()


def test_only_group_members_can_use_the_partition_of_the_group(cluster: Cluster) -> None:
    eventually("workers have the group", lambda: "lab" in cluster.run("srun id -nG").split(), 120)
    assert cluster.run("srun --partition=ours hostname")
    job = cluster.run("sbatch --parsable --partition=theirs --wrap=hostname --output=/dev/null")
    reason = f"squeue --noheader --jobs={job} --format=%r"
    eventually("squeue shows the reason", lambda: "not in group permitted" in cluster.run(reason))
    assert cluster.job_state(int(job)) == "PENDING"


def test_nodeset_scales_to_zero_and_back(cluster: Cluster, folder: str) -> None:
    waiting = cluster.submit(folder, "#!/bin/sh\nhostname >host", "--constraint=elastic --hold")
    with cluster.edited(edit_nodeset("elastic", replicas=0)):
        cluster.deploy("up")
        eventually("elastic-0 is gone", lambda: "elastic-0" not in cluster.nodes(), 90)
        cluster.run(f"scontrol release {waiting}")
        assert cluster.job_state(waiting) == "PENDING", "the job waits for the nodeset"
    cluster.deploy("up")
    cluster.wait_for_job(waiting, "COMPLETED", 120)
    assert cluster.run(f"cat {folder}/host") == "elastic-0"


def test_removing_and_adding_a_nodeset_does_not_restart_slurmctld(
    cluster: Cluster, folder: str
) -> None:
    def remove(values: dict[str, Any]) -> None:
        values["nodesets"] = [one for one in values["nodesets"] if one["name"] != "doomed"]
        values["partitions"][-1]["nodesets"].remove("doomed")

    controller = cluster.controller()
    restarts = cluster.restarts(controller)
    # The job `brief` ends only after the node is drained. Otherwise, the job `waiting` would start
    # on the node.
    drained = "scontrol show node doomed-0 | grep -q State=.*DRAIN"
    script = f"#!/bin/sh\nuntil {drained}; do sleep 0.5; done; sleep 3; echo finished >done"
    brief = cluster.submit(folder, script, "--nodelist=doomed-0 --mem=10")
    cluster.wait_for_job(brief, "RUNNING")
    waiting = cluster.submit(folder, "#!/bin/sh\ntrue", "--constraint=doomed --mem=200")

    try:
        with cluster.edited(remove):
            cluster.deploy("up")

            assert cluster.job_state(brief) == "COMPLETED", "the job ends within drain_grace"
            assert cluster.run(f"cat {folder}/done") == "finished"
            others = {"cpu-0", "cpu-1", "fixed-0", "fixed-1", "equipped-0", "elastic-0", "brief-0"}
            assert set(cluster.nodes()) == others
            assert cluster.job_state(waiting) == "PENDING"
            assert cluster.run("srun hostname")
    finally:
        cluster.deploy("up")
    cluster.wait_for_job(waiting, "COMPLETED", 120)
    assert cluster.controller() == controller
    assert cluster.restarts(controller) == restarts


def test_job_is_requeued_after_the_drain_grace(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=brief-0", "--requeue")
    cluster.wait_for_job(job, "RUNNING")

    begin = time.monotonic()
    cluster.kubectl("delete", "pod", "brief-0", timeout=180)

    assert time.monotonic() - begin < 60, "drain_grace is three seconds"
    # Slurm restarts the job two minutes later, when its old credential has expired.
    eventually("the job is pending again", lambda: cluster.job_state(job) == "PENDING")
    assert "Restarts=1" in cluster.run(f"scontrol show job {job}")
    eventually("the node is back", is_idle(cluster, "brief-0"), 90)


def test_invalid_node_parameter_is_refused_before_pods_exist(cluster: Cluster) -> None:
    odd = {**SMALL, "name": "odd", "parameters": {"NoSuchThing": 1}}
    with cluster.edited(lambda values: values["nodesets"].append(odd)):
        refused = cluster.deploy("up", check=False)
    assert "nodeset odd" in error_line(refused)
    assert "NoSuchThing" in error_line(refused)
    assert cluster.kubectl("get", "pod", "odd-0", "--ignore-not-found") == ""
    cluster.deploy("up")
