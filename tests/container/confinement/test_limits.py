"""Limits of jobs, with the version of cgroups that the machine has.

`make vm` runs these tests on a machine with version 2.
"""

import pytest

from tests.support.spank import Node
from tests.support.waiting import eventually

GROUPS = "find /sys/fs/cgroup -type d -name 'job_*'"
SEEN = "/sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/memory/cgroup.procs"
"""Files that jobs can see: the first file exists with version 2, the second with version 1."""


def test_job_above_its_memory_ends_and_its_neighbour_continues(node: Node) -> None:
    neighbour = node.submit("sleep 600", "--mem=100", name="student")
    node.controller.wait_for_job(neighbour, "RUNNING")

    greedy = node.submit("head -c 400M /dev/zero | tail", "--mem=50")

    node.controller.wait_for_job(greedy, "OUT_OF_MEMORY")
    assert node.controller.job_state(neighbour) == "RUNNING"
    assert node.user("srun --quiet --mem=50 echo another") == "another"


@pytest.mark.parametrize("cpus", ["1", "2"])
def test_job_uses_only_the_cpus_that_it_requested(node: Node, cpus: str) -> None:
    assert node.user(f"srun --quiet --mem=50 --cpus-per-task={cpus} nproc") == cpus


def test_job_cannot_start_more_processes_than_its_limit(node: Node) -> None:
    node.isolate(processes=50)
    # Use dash, because bash would try again if it cannot fork.
    script = "for n in $(seq 100); do sleep 60 & done"

    output = node.user(f"srun --quiet --mem=100 dash -c '{script}' 2>&1 || true")

    assert "Cannot fork" in output


@pytest.mark.parametrize("name", ["researcher", "root"])
def test_jobs_cannot_change_cgroups(node: Node, name: str) -> None:
    script = f"ls {SEEN}; find /sys/fs/cgroup -writable -name cgroup.procs; true"
    run = node.root if name == "root" else node.user

    seen, *writable = run(f"srun --quiet --mem=50 sh -c '{script}' 2>/dev/null").split()

    assert seen in SEEN.split()
    assert writable == []


def test_end_of_a_job_removes_its_cgroups(node: Node) -> None:
    job = node.submit("sleep 600", "--mem=50")
    eventually("the job has groups", lambda: node.root(GROUPS))

    node.controller.run(f"scancel {job}")

    eventually("the groups are removed", lambda: not node.root(GROUPS))
