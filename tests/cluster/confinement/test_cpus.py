"""A job runs on the CPUs that it requested, and a greedy job takes no CPU time from others."""

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def srun(cluster: Cluster, options: str, command: str) -> str:
    return cluster.run(f"srun --mem=50 {options} {command}")


@pytest.mark.parametrize(("options", "number"), [("-c1", "1"), ("-c2", "2"), ("-n2 -c1", "1\n1")])
def test_a_task_sees_as_many_cpus_as_it_requested(
    cluster: Cluster, options: str, number: str
) -> None:
    assert srun(cluster, f"-N1 {options}", "nproc") == number


def test_tasks_on_one_node_have_different_cpus(cluster: Cluster) -> None:
    masks = srun(cluster, "-N1 -n2 -c1", "sh -c 'taskset -p $$'").splitlines()

    assert len({line.rpartition(" ")[2] for line in masks}) == 2


def test_a_task_cannot_bind_itself_to_another_cpu(cluster: Cluster) -> None:
    script = "sh -c 'taskset -p 3 $$ >/dev/null; nproc'"

    assert srun(cluster, "-N1 -n1 -c1", script) == "1"


@pytest.mark.parametrize("cpus", ["1", "2"])
def test_steps_and_ssh_sessions_have_the_cpus_of_the_job(
    cluster: Cluster, folder: str, cpus: str
) -> None:
    options = ("--nodelist=cpu-0", f"--cpus-per-task={cpus}", "--mem=50")
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", *options)
    cluster.wait_for_job(job, "RUNNING")

    step = cluster.run(f"srun --jobid={job} --overlap --ntasks=1 nproc")
    session = cluster.run("ssh -o BatchMode=yes cpu-0 nproc")

    assert (step, session) == (cpus, cpus)


def test_slurm_reports_the_cpu_binding(cluster: Cluster) -> None:
    output = cluster.ssh("srun --mem=50 -N1 -n2 -c1 --cpu-bind=verbose,cores true").stderr

    assert output.count("cpu-bind=MASK") == 2
    assert "task  0" in output
    assert "task  1" in output


@pytest.mark.parametrize(("order", "nodes"), [("block", "0011"), ("cyclic", "0101")])
def test_tasks_follow_the_requested_distribution(cluster: Cluster, order: str, nodes: str) -> None:
    lines = srun(cluster, f"-N2 -n4 -c1 --distribution={order} --label", "hostname").splitlines()

    assert sorted(lines) == [f"{task}: cpu-{node}" for task, node in enumerate(nodes)]


SPIN = "while :; do :; done"
FORK = """python3 -c 'import os, time
generation = 0
while generation < 2:
    try:
        generation += os.fork() == 0
    except OSError:
        pass
time.sleep(1000)'"""
"""Script that starts as many processes as the node allows. Only the first process and its direct
children, about twenty processes, use the CPU; the others sleep. If all processes used the CPU,
slurmd would get too little CPU time on a machine that other clusters use at the same time."""


@pytest.mark.parametrize(
    "greedy",
    [SPIN, f"for n in $(seq 8); do ({SPIN}) & done; wait", FORK],
    ids=["one process", "eight processes", "many processes"],
)
def test_greedy_job_takes_no_cpu_time_from_another_job(
    cluster: Cluster, folder: str, greedy: str
) -> None:
    options = ("--nodelist=cpu-0", "--ntasks=1", "--cpus-per-task=1")
    mine = cluster.submit(folder, f"#!/bin/bash\n{SPIN}", *options, "--mem=50")
    cluster.wait_for_job(mine, "RUNNING")

    # Request enough memory for as many processes as the node allows.
    theirs = cluster.submit(folder, f"#!/bin/bash\n{greedy}", *options, "--mem=700")
    cluster.wait_for_job(theirs, "RUNNING")

    eventually(
        "the greedy job has used two CPU seconds", lambda: sum(used(cluster, theirs).values()) > 2
    )
    own, taken = used(cluster, mine), used(cluster, theirs)
    cpu = max(own, key=lambda number: own[number])
    assert taken.get(cpu, 0) < own[cpu] / 10
    # The greedy job has not damaged the node: the next job can use the CPU.
    cluster.run(f"scancel {theirs}")
    assert cluster.run(f"srun --mem=50 {' '.join(options)} echo next") == "next"


def test_steps_of_a_job_share_its_process_limit(cluster: Cluster, folder: str) -> None:
    options = ("--nodelist=cpu-0", "--ntasks=1", "--mem=400")
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", *options)
    cluster.wait_for_job(job, "RUNNING")
    step = f"srun --jobid={job} --overlap --overcommit --mem=0 -n150 sh -c 'echo here; sleep 10'"

    output = cluster.ssh(f"({step} & {step}) 2>&1; wait", check=False).stdout

    assert output.count("here") < 256
    assert "the job has reached its limit of 256 processes on this node" in output


def used(cluster: Cluster, job: int) -> dict[str, float]:
    """Return the seconds that a job has used on each CPU, from the kernel of its node.

    The result is empty until slurmstepd has created the job's cgroup, some time after the job's
    state becomes RUNNING. Version 2 of cgroups has no times per CPU, so all time is attributed to
    the one CPU that the job may use.
    """
    top = "/sys/fs/cgroup"
    v1 = f"cat {top}/cpuacct/slurm_*/uid_*/job_{job}/cpuacct.usage_percpu"
    v2 = f"cd {top}/system.slice/*.scope/job_{job} && cat cpuset.cpus.effective cpu.stat"
    either = f"({v1} || ({v2})) 2>/dev/null || true"
    text = cluster.in_pod("cpu-0", "slurmd", "sh", "-c", either).split()
    if "usage_usec" in text:
        return {text[0]: int(text[2]) / 1e6}
    return {str(cpu): int(value) / 1e9 for cpu, value in enumerate(text)}
