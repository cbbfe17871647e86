"""A job sees only the shared root (the jail), with its own /tmp."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.waiting import eventually


def test_job_sees_the_jail_as_its_root(cluster: Cluster) -> None:
    # Only the jail's image has tmux, only the worker's image has slurmd.
    output = cluster.run(
        "srun sh -c 'test -x /usr/bin/tmux && ! test -e /usr/sbin/slurmd && echo jail'"
    )

    assert output == "jail"
    assert cluster.run("srun stat -c %i /etc/passwd") == cluster.run("stat -c %i /etc/passwd")


def test_file_that_a_job_writes_is_visible_on_other_nodes(cluster: Cluster, folder: str) -> None:
    cluster.run(f"srun --nodelist=cpu-0 sh -c 'echo from cpu-0 >{folder}/note'")

    assert cluster.run(f"srun --nodelist=cpu-1 cat {folder}/note") == "from cpu-0"


def test_jobs_on_one_node_have_private_tmp_and_dev_shm(cluster: Cluster, folder: str) -> None:
    write = "touch /tmp/mine /var/tmp/mine /dev/shm/mine ready; sleep 300"
    first = cluster.submit(folder, f"#!/bin/sh\n{write}", "--nodelist=cpu-0")
    eventually("the first job has written", lambda: cluster.run(f"ls {folder}/ready", check=False))

    output = cluster.run("srun --nodelist=cpu-0 ls /tmp /var/tmp /dev/shm")

    assert "mine" not in output
    assert "mine" not in cluster.run("ls /tmp /var/tmp /dev/shm"), (
        "the login node does not see these files either"
    )
    own = cluster.run(f"srun --jobid={first} --overlap ls /tmp /var/tmp /dev/shm")
    assert own.split().count("mine") == 3, "all steps of one job share these files"


def test_ended_jobs_leave_no_process_on_the_node(cluster: Cluster) -> None:
    names = "cat /proc/[0-9]*/comm 2>/dev/null || true"
    cluster.run("for i in 1 2 3; do srun --nodelist=cpu-0 true; done")

    eventually(
        "no slurmstepd is left, not even a zombie",
        lambda: "slurmstepd" not in cluster.in_pod("cpu-0", "slurmd", "sh", "-c", names),
    )


def test_tmp_of_a_job_is_removed_when_the_job_ends(cluster: Cluster) -> None:
    cluster.run("srun --nodelist=cpu-0 touch /tmp/left /dev/shm/left")

    def leftovers() -> str:
        return cluster.in_pod(
            "cpu-0", "slurmd", "find", "/var/spool/slurmstack", "/dev/shm", "-name", "left"
        )

    eventually("no file is left", lambda: not leftovers())


@pytest.fixture
def broken_jail(cluster: Cluster) -> Iterator[None]:
    """Remove a mount point of the jail that every step needs, for the duration of the test."""
    place = "/mnt/jail/var/spool/slurmd"
    cluster.in_pod("cpu-0", "slurmd", "mv", place, f"{place}.away")
    yield
    cluster.in_pod("cpu-0", "slurmd", "mv", f"{place}.away", place)
    cluster.wait_for_nodes("cpu-0", "cpu-1")


@pytest.mark.usefixtures("broken_jail")
def test_step_in_a_broken_jail_fails_and_logs_the_cause(cluster: Cluster) -> None:
    answer = cluster.ssh("srun --nodelist=cpu-0 touch /var/tmp/ran-outside", check=False)

    assert answer.returncode != 0
    assert "launch failed" in answer.stderr, answer.stderr
    logged = cluster.kubectl("logs", "cpu-0", "--container=slurmd")
    assert "chroot: mount point /mnt/jail/var/spool/slurmd is missing in the jail" in logged
    files = cluster.in_pod(
        "cpu-0", "slurmd", "find", "/var/tmp", "/mnt/jail/var/tmp", "-name", "ran*"
    )
    assert files == ""


def test_job_cannot_read_the_munge_key_or_a_kubernetes_token(cluster: Cluster) -> None:
    script = "cat /etc/auth-secret/* /run/munged/key/* /run/secrets/*/*/token; env | grep KUBE"
    answer = cluster.ssh(f"srun sh -c '{script}; true' 2>/dev/null")

    assert answer.stdout.strip() == ""


def test_no_container_is_privileged(cluster: Cluster) -> None:
    for pod in cluster.objects("pods"):
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            assert container["securityContext"]["privileged"] is False, container["name"]


def test_job_sees_only_its_own_processes_and_basic_devices(
    cluster: Cluster,
) -> None:
    processes = cluster.run("srun ps -e -o comm=").split()

    assert "ps" in processes
    assert "slurmd" not in processes
    assert "sda" not in cluster.run("srun ls /dev").split()
    assert "null" in cluster.run("srun ls /dev").split()


def test_job_cannot_gain_privileges(cluster: Cluster) -> None:
    assert cluster.run("srun grep NoNewPrivs /proc/self/status").split() == ["NoNewPrivs:", "1"]
