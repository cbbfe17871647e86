"""Login nodes come and go, and their settings change, while users work."""

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.support.cluster import Cluster
from tests.support.commands import execute
from tests.support.waiting import eventually

SETTINGS = "/usr/lib/slurmstack/login"


@contextlib.contextmanager
def session(cluster: Cluster) -> Iterator[subprocess.Popen[str]]:
    """A session that says again what it is told."""
    command = ["ssh", "-F", str(cluster.directory / "ssh_config"), "login", "cat"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert answers(process)
        yield process
        assert process.stdin is not None
        process.stdin.close()


def answers(process: subprocess.Popen[str]) -> bool:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("still there?\n")
    process.stdin.flush()
    return process.stdout.readline() == "still there?\n"


def test_a_second_login_node_comes_and_goes_and_ends_no_session(cluster: Cluster) -> None:
    def grow(values: dict[str, Any]) -> None:
        values["login"]["replicas"] = 2

    keys = ".ssh/id_ed25519"
    cluster.run(
        f"mkdir -pm 700 .ssh && ssh-keygen -qt ed25519 -N '' -f {keys}"
        f" && cat {keys}.pub >>.ssh/authorized_keys"
    )
    uid = cluster.pod_uid("login-0")
    try:
        with session(cluster) as before:
            with cluster.edited(grow):
                cluster.deploy("up")
                there = cluster.run("ssh -o BatchMode=yes login-1 'hostname; srun hostname'")
                assert there.splitlines()[0] == "login-1"
                assert there.splitlines()[1].startswith("cpu-")
                assert answers(before)
            cluster.deploy("up")
            assert answers(before)
    finally:
        cluster.run(f"rm -f .ssh/authorized_keys {keys} {keys}.pub")

    eventually("it has gone", lambda: cluster.pod_uid("login-1") == "")
    assert cluster.pod_uid("login-0") == uid


def test_a_limit_counts_without_a_restart(cluster: Cluster) -> None:
    def limit(values: dict[str, Any]) -> None:
        values["login"]["limits"] = {"processes": 60}

    def in_force() -> bool:
        return "processes=60" in cluster.in_pod(
            "login-0", "sshd", "sh", "-c", f"cat {SETTINGS}/limits 2>/dev/null || true"
        )

    uid = cluster.pod_uid("login-0")
    with session(cluster) as before, cluster.edited(limit):
        cluster.deploy("up")
        eventually("the limit is there", in_force, 240)

        forks = "for _ in $(seq 100); do sleep 20 >/dev/null 2>&1 & done"
        eventually(
            "a user cannot fork without end",
            lambda: "Cannot fork" in cluster.ssh(f"sh -c '{forks}'", check=False).stderr,
        )
        assert answers(before)
    cluster.in_pod("login-0", "sshd", "pkill", "-KILL", "-u", "researcher", "sleep", check=False)
    cluster.deploy("up")

    eventually("the limit is gone", lambda: not in_force(), 240)
    assert cluster.pod_uid("login-0") == uid


def test_memory_that_no_process_has_any_more_is_given_back(cluster: Cluster) -> None:
    """Else a user fills a login node's memory for good, and is not there to be asked."""
    keep = (
        "import ctypes; libc = ctypes.CDLL(None); segment = libc.shmget(0, 4096, 0o1600);"
        " assert segment >= 0; assert libc.shmat(segment, None, 0) != -1; print(segment)"
    )
    segment = cluster.run(f"python3 -c '{keep}'")

    there = f"ipcs -m | awk '$2 == {segment}'"
    eventually("it is gone", lambda: not cluster.in_pod("login-0", "sshd", "sh", "-c", there))


def test_who_logs_in_on_a_terminal_is_told_how_the_cluster_is(cluster: Cluster) -> None:
    shown = cluster.ssh("bash -lc true; exit", tty=True).stdout
    assert "nodes idle" not in shown, "a command is no login"

    config = str(cluster.directory / "ssh_config")

    def told() -> str:
        """The greeting once Slurm has answered in time, or "": a busy machine may miss that.

        While sshd reads its settings again, it closes connections that it has not accepted yet.
        """
        ssh = ["ssh", "-tt", "-F", config, "login"]
        terminal = execute(ssh, stdin="exit\n", check=False).stdout
        return terminal if "of 2 nodes idle" in terminal else ""

    greeting = eventually("the state is told", told, timeout=240)
    assert f"{cluster.stack}:" in greeting
    assert "main*" in greeting
