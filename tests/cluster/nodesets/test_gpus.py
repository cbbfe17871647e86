"""GPUs of nodes, from Kubernetes' device plugin to the devices that a job can open.

There are no real GPUs. The tests' device plugin gives pods other devices, such as /dev/zero, under
the names of GPUs. It does so through the real kubelet. The GPUs' numbers have gaps, as on a machine
where several pods share the GPUs.

All MIG slices (parts of one GPU) share /dev/nvidia0, so every job with a slice must be able to open
this file. The tests use /dev/null instead of /dev/nvidia0, because every job can open /dev/null.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.deviceplugin import Offer, offered
from tests.support.nodesets import SMALL, deployed, is_idle
from tests.support.waiting import eventually

GPU = "nvidia.com/gpu"
SLICE = "nvidia.com/mig-1g.10gb"
CAP = "/dev/nvidia-caps/nvidia-cap"
WHOLE = Offer(
    GPU,
    {
        "a": {"/dev/nvidia3": "/dev/full"},
        "b": {"/dev/nvidia5": "/dev/random"},
        "c": {"/dev/nvidia6": "/dev/zero"},
        "d": {"/dev/nvidia9": "/dev/urandom"},
    },
)
"""Whole GPUs for two nodes, `gpu-0` and `fixed-0`."""
SLICES = Offer(
    SLICE,
    {
        "a": {"/dev/nvidia0": "/dev/null", f"{CAP}12": "/dev/zero", f"{CAP}13": "/dev/random"},
        "b": {"/dev/nvidia0": "/dev/null", f"{CAP}30": "/dev/urandom", f"{CAP}31": "/dev/full"},
    },
)
NODESETS: list[dict[str, Any]] = [
    {**SMALL, "name": "gpu", "cpus": 2, "gpus": {"type": "test", "count": 2, "shards": 2}},
    {
        **SMALL,
        "name": "slices",
        "cpus": 2,
        "gpus": {"type": "test", "count": 1, "mig": {"1g.10gb": 2}},
    },
    {**SMALL, "name": "fixed", "kind": "static", "cpus": 2, "gpus": {"type": "test", "count": 2}},
]
FILES = "/dev/nvidia[0-9]* /dev/nvidia-caps/*"
OPEN = f"for file in {FILES}; do (: <$file) 2>/dev/null && echo $file; done"


@pytest.fixture(scope="module", autouse=True)
def nodes(cluster: Cluster) -> Iterator[None]:
    """Deploy three nodes: one with whole GPUs, one with MIG slices, and a static one.

    The static node also has whole GPUs. Its GPUs are in slurm.conf.
    """
    with offered(cluster, "node-1", WHOLE, SLICES), deployed(cluster, nodesets=NODESETS):
        for node in (f"{nodeset['name']}-0" for nodeset in NODESETS):
            eventually(f"{node} is idle", is_idle(cluster, node), 120)
        yield


def opened(cluster: Cluster, *options: str) -> list[str]:
    """Return the devices that a job with these options can open."""
    return cluster.run(f"srun --mem=20 {' '.join(options)} bash -c '{OPEN}; true'").split()


def owned(cluster: Cluster, node: str) -> list[str]:
    """Return the GPUs that the kubelet has assigned to a node."""
    return cluster.in_pod(node, "slurmd", "sh", "-c", "ls /dev/nvidia[0-9]*").split()


def held(cluster: Cluster, folder: str, node: str, gres: str) -> list[set[str]]:
    """Run two jobs at the same time.

    Return a set for each job: the devices that the job can open, and its CUDA_VISIBLE_DEVICES.
    """
    hold = f"#!/bin/bash\n{OPEN}; echo $CUDA_VISIBLE_DEVICES; touch ready-$SLURM_JOB_ID; sleep 600"
    options = (f"--nodelist={node}", f"--gres={gres}", "--ntasks=1", "--mem=20")
    jobs = [cluster.submit(folder, hold, *options) for _ in range(2)]
    for job in jobs:
        ready = f"ls {folder}/ready-{job} 2>/dev/null || true"
        eventually(f"job {job} runs", lambda: cluster.run(ready))  # noqa: B023
    return [set(cluster.run(f"cat {folder}/slurm-{job}.out").split()) for job in jobs]


@pytest.mark.parametrize("node", ["gpu-0", "fixed-0"])
def test_jobs_on_one_node_have_different_gpus(cluster: Cluster, folder: str, node: str) -> None:
    first, second = held(cluster, folder, node, "gpu:1")

    # Each job has one GPU. In every job, CUDA_VISIBLE_DEVICES counts from 0, so it is 0 in both.
    # All other items are device files: no file may be in both sets.
    assert first & second == {"0"}
    assert sorted((first | second) - {"0"}) == owned(cluster, node)
    assert len(first) == len(second) == 2


def test_ssh_session_can_open_only_the_gpus_of_the_job(cluster: Cluster, folder: str) -> None:
    job = cluster.submit(
        folder, "#!/bin/sh\nsleep 600", "--nodelist=gpu-0", "--gres=gpu:1", "--mem=20"
    )
    cluster.wait_for_job(job, "RUNNING")

    inside = cluster.run(f"srun --jobid={job} --overlap bash -c '{OPEN}; true'").split()
    session = cluster.run(f"ssh -o BatchMode=yes gpu-0 '{OPEN}; true'").split()

    assert len(inside) == 1
    assert session == inside


def test_ssh_session_has_all_gpus_of_a_job_on_several_nodes(cluster: Cluster, folder: str) -> None:
    """The job requests more GPUs than one node has."""
    options = ("--nodelist=gpu-0,fixed-0", "--nodes=2", "--gpus=4", "--mem=20")
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", *options)
    cluster.wait_for_job(job, "RUNNING")

    for node in ("gpu-0", "fixed-0"):
        session = cluster.run(f"ssh -o BatchMode=yes {node} '{OPEN}; true'").split()
        assert session == owned(cluster, node)


def test_ssh_session_has_the_gpus_of_all_tasks(cluster: Cluster, folder: str) -> None:
    options = ("--nodelist=gpu-0", "--ntasks=2", "--gpus-per-task=1", "--mem=20")
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", *options)
    cluster.wait_for_job(job, "RUNNING")

    session = cluster.run(f"ssh -o BatchMode=yes gpu-0 '{OPEN}; nproc'").split()

    assert session == [*owned(cluster, "gpu-0"), "2"]


def test_sgather_copies_files_of_a_job_with_gpus(cluster: Cluster, folder: str) -> None:
    script = """#!/bin/sh
srun sh -c 'echo $SLURMD_NODENAME >/tmp/part'
sgather /tmp/part all && cat all.fixed-0 all.gpu-0"""
    options = ("--nodelist=gpu-0,fixed-0", "--nodes=2", "--gpus=4", "--mem=60", "--output=out")
    cluster.submit(folder, script, *options, "--wait")

    assert cluster.run(f"cat {folder}/out").split() == ["fixed-0", "gpu-0"]


def test_job_that_requests_no_gpus_cannot_open_any(cluster: Cluster) -> None:
    assert opened(cluster, "--nodelist=gpu-0") == []


def test_job_may_request_all_gpus_of_a_node(cluster: Cluster) -> None:
    assert opened(cluster, "--nodelist=gpu-0", "--gres=gpu:test:2") == owned(cluster, "gpu-0")


def test_job_with_a_shard_opens_one_gpu(cluster: Cluster, folder: str) -> None:
    first, second = held(cluster, folder, "gpu-0", "shard:1")

    assert len(first - {"0"}) == len(second - {"0"}) == 1


def test_jobs_open_only_their_own_mig_slices(cluster: Cluster, folder: str) -> None:
    first, second = held(cluster, folder, "slices-0", "gpu:1g.10gb:1")

    assert first & second == {"0", "/dev/nvidia0"}
    assert sorted(sorted(devices - (first & second)) for devices in (first, second)) == [
        [f"{CAP}12", f"{CAP}13"],
        [f"{CAP}30", f"{CAP}31"],
    ]


@pytest.mark.parametrize(
    ("node", "gres", "shown", "tres"),
    [
        ("gpu-0", "gpu:1", "gpu:test:2", {"gres/gpu=1", "gres/gpu:test=1"}),
        # Slurm may show shards with the type of their GPUs.
        ("gpu-0", "shard:1", "shard(:test)?:4", {"gres/shard=1"}),
        ("slices-0", "gpu:1g.10gb:1", "gpu:1g.10gb:2", {"gres/gpu=1", "gres/gpu:1g.10gb=1"}),
    ],
)
def test_slurm_reports_gpus_of_nodes_and_jobs(
    cluster: Cluster, folder: str, node: str, gres: str, shown: str, tres: set[str]
) -> None:
    found = cluster.run(f"scontrol --oneliner show node {node}")
    assert re.search(rf" Gres=(\S+,)?{shown}[(,\s]", found)

    options = (f"--nodelist={node}", f"--gres={gres}", "--mem=20", "--wait")
    job = cluster.submit(folder, "#!/bin/sh\ntrue", *options)

    allocated = f"sacct --noheader --parsable2 -X --format=AllocTRES --jobs={job}"
    assert tres <= set(cluster.run(allocated).split(","))


def test_nodes_without_gpus_run_jobs_without_gpus(cluster: Cluster) -> None:
    assert cluster.run("srun --mem=20 --nodelist=cpu-0 hostname") == "cpu-0"
