"""`ssh cpu-0` enters the user's job on that node. It fails if the user has no job there."""

import shlex
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.commands import execute
from tests.support.waiting import eventually

SSH = "ssh -o BatchMode=yes"


@pytest.fixture
def job(cluster: Cluster, folder: str) -> Iterator[int]:
    """Start a job on cpu-0 that writes a file into its /tmp."""
    job = cluster.submit(
        folder, "#!/bin/sh\necho mine >/tmp/own; touch ready; sleep 300", "--nodelist=cpu-0"
    )
    eventually("the job has written", lambda: cluster.run(f"ls {folder}/ready", check=False))
    yield job
    cluster.run(f"scancel {job}")


def test_ssh_session_runs_in_the_job(cluster: Cluster, job: int) -> None:
    script = "hostname; echo $SLURM_JOB_ID; cat /tmp/own; readlink /proc/self/ns/pid"
    namespace = cluster.run(f"srun --jobid={job} --overlap readlink /proc/self/ns/pid")

    output = cluster.run(f"{SSH} cpu-0 {shlex.quote(script)}").split()

    assert output == ["cpu-0", str(job), "mine", namespace]


def test_ssh_passes_input_output_and_exit_code(cluster: Cluster, job: int, folder: str) -> None:
    cluster.run(f"head -c 1000000 /dev/urandom >{folder}/sent")

    cluster.run(f"{SSH} cpu-0 cat <{folder}/sent | cmp - {folder}/sent")
    failed = cluster.ssh(f"{SSH} cpu-0 'echo out; echo err >&2; exit 7'", check=False)

    assert (failed.returncode, failed.stdout, failed.stderr) == (7, "out\n", "err\n")


def test_ssh_allocates_a_terminal(cluster: Cluster, job: int) -> None:
    assert cluster.ssh(f"{SSH} -tt cpu-0 tty", tty=True).stdout.startswith("/dev/pts/")


@pytest.mark.parametrize("way", ["scp -q", "rsync -a"])
def test_scp_and_rsync_copy_to_and_from_the_jobs_tmp(
    cluster: Cluster, job: int, folder: str, way: str
) -> None:
    cluster.run(f"head -c 1000000 /dev/urandom >{folder}/sent")

    cluster.run(f"{way} {folder}/sent cpu-0:/tmp/sent && {way} cpu-0:/tmp/sent {folder}/back")

    cluster.run(f"cmp {folder}/sent {folder}/back")
    assert "sent" not in cluster.run("ls /tmp")
    assert "sent" in cluster.run(f"srun --jobid={job} --overlap ls /tmp")


def test_job_can_reach_its_other_node_with_ssh(cluster: Cluster) -> None:
    """Launchers of parallel programs use ssh to start helpers on the job's other nodes."""
    script = f"test $SLURM_NODEID = 1 || {SSH} cpu-1 hostname"

    assert cluster.run(f"srun --nodes=2 sh -c {shlex.quote(script)}") == "cpu-1"


def test_ssh_enters_each_part_of_a_heterogeneous_job(cluster: Cluster, folder: str) -> None:
    cluster.submit(folder, "#!/bin/sh\nsleep 300", "--nodelist=cpu-0 : --nodelist=cpu-1")
    running = "squeue --me --noheader --states=RUNNING --format=%N"
    eventually("both parts run", lambda: len(cluster.run(running).split()) == 2, 120)

    for node in ("cpu-0", "cpu-1"):
        assert cluster.run(f"{SSH} {node} hostname") == node


def test_machine_outside_can_reach_a_node_through_a_login_node(cluster: Cluster, job: int) -> None:
    config = str(cluster.directory / "ssh_config")
    options = {
        "User": "researcher",
        "IdentityFile": str(cluster.directory / "id_ed25519"),
        "ProxyCommand": f"ssh -F {config} login /usr/lib/slurmstack/to-node %h %r",
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "no",
    }
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]

    assert execute(["ssh", "-F", "/dev/null", *given, "cpu-0", "hostname"]).stdout == "cpu-0\n"


def test_ssh_is_refused_without_a_job_on_the_node(cluster: Cluster, job: int) -> None:
    refused = cluster.ssh(f"{SSH} cpu-1 hostname", check=False)

    assert refused.returncode == 255
    assert refused.stdout == ""
    assert refused.stderr.startswith("cpu-1: you have no running job there")


def test_no_sshd_listens_on_a_node(cluster: Cluster) -> None:
    knock = "timeout 5 bash -c ': </dev/tcp/cpu-0/22'"

    assert cluster.ssh(knock, check=False).returncode != 0


def test_ssh_session_ends_with_the_job(cluster: Cluster, job: int) -> None:
    command = [
        *("ssh", "-F", str(cluster.directory / "ssh_config"), "login"),
        f"{SSH} cpu-0 'nohup setsid sleep 9876 >/dev/null 2>&1 & echo in; sleep 300'",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == "in\n"

        cluster.run(f"scancel {job}")

        assert session.wait(90) == 255
    processes = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
    eventually(
        "no process of the session is left on the node",
        lambda: "sleep 9876" not in cluster.in_pod("cpu-0", "slurmd", "sh", "-c", processes),
    )
