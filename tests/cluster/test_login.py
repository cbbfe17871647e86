"""Sessions continue while login nodes are added, removed or reconfigured."""

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
    """Open a session that echoes its input."""
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


def test_adding_a_login_node_keeps_existing_sessions(cluster: Cluster) -> None:
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

    eventually("login-1 is gone", lambda: cluster.pod_uid("login-1") == "")
    assert cluster.pod_uid("login-0") == uid


def test_new_process_limit_takes_effect_and_login_does_not_restart(cluster: Cluster) -> None:
    def limit(values: dict[str, Any]) -> None:
        values["login"]["limits"] = {"processes": 60}

    def in_force() -> bool:
        return "processes=60" in cluster.in_pod(
            "login-0", "sshd", "sh", "-c", f"cat {SETTINGS}/limits 2>/dev/null || true"
        )

    uid = cluster.pod_uid("login-0")
    with session(cluster) as before, cluster.edited(limit):
        cluster.deploy("up")
        eventually("the limit is in force", in_force, 240)

        forks = "for _ in $(seq 100); do sleep 20 >/dev/null 2>&1 & done"
        eventually(
            "a user reaches the limit of processes",
            lambda: "Cannot fork" in cluster.ssh(f"sh -c '{forks}'", check=False).stderr,
        )
        assert answers(before)
    cluster.in_pod("login-0", "sshd", "pkill", "-KILL", "-u", "researcher", "sleep", check=False)
    cluster.deploy("up")

    eventually("the limit is removed", lambda: not in_force(), 240)
    assert cluster.pod_uid("login-0") == uid


def test_login_node_frees_orphaned_shared_memory(cluster: Cluster) -> None:
    """A user who has logged out must not occupy a login node's memory."""
    keep = (
        "import ctypes; libc = ctypes.CDLL(None); segment = libc.shmget(0, 4096, 0o1600);"
        " assert segment >= 0; assert libc.shmat(segment, None, 0) != -1; print(segment)"
    )
    segment = cluster.run(f"python3 -c '{keep}'")

    there = f"ipcs -m | awk '$2 == {segment}'"
    eventually(
        "the segment is gone", lambda: not cluster.in_pod("login-0", "sshd", "sh", "-c", there)
    )


def test_login_on_a_terminal_shows_the_cluster_state(cluster: Cluster) -> None:
    output = cluster.ssh("bash -lc true; exit", tty=True).stdout
    assert "nodes idle" not in output, "a command gets no greeting"

    config = str(cluster.directory / "ssh_config")

    def read_greeting() -> str:
        """Return the greeting, or "" if Slurm answers too late or sshd closes the connection.

        While sshd reloads its settings, it closes connections that it has not accepted yet.
        """
        ssh = ["ssh", "-tt", "-F", config, "login"]
        terminal = execute(ssh, stdin="exit\n", check=False).stdout
        return terminal if "of 2 nodes idle" in terminal else ""

    greeting = eventually("the greeting reports the state", read_greeting, timeout=240)
    assert f"{cluster.stack}:" in greeting
    assert "main*" in greeting
