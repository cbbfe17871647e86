"""Output of Slurm's commands as data, and scripts that run on the login node and in jobs."""

import contextlib
import shlex
import subprocess
from collections.abc import Iterator

from tests.support.cluster import Cluster

NODES = ("cpu-0", "cpu-1")
PLACES = ("login-0", *NODES)
"""Hosts on which users' programs run."""


def fields(text: str) -> dict[str, str]:
    """Parse the `Key=Value` words of a record of `scontrol show`."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def show(cluster: Cluster, what: str) -> dict[str, str]:
    """Return one record of `scontrol show`."""
    return fields(cluster.run(f"scontrol --oneliner show {what}"))


def at(place: str, script: str) -> str:
    """Return a command that runs a script on the login node, or on another node in a job."""
    return script if place == "login-0" else f"srun --nodelist={place} sh -c {shlex.quote(script)}"


def everywhere(cluster: Cluster, script: str) -> dict[str, str]:
    """Return a script's output on the login node and, in jobs, on the other nodes."""
    return {place: cluster.run(at(place, script)) for place in PLACES}


def common_answer(answers: dict[str, str]) -> str:
    """Return the answer that all places share; fail if the answers differ."""
    assert len(set(answers.values())) == 1, answers
    return next(iter(answers.values()))


def write(cluster: Cluster, path: str, text: str) -> None:
    cluster.run(f"cat >{path} <<'END-OF-FILE'\n{text}\nEND-OF-FILE")


@contextlib.contextmanager
def terminal(cluster: Cluster, command: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a user's command, or a session, on its own terminal, and hang up afterwards."""
    config = str(cluster.directory / "ssh_config")
    with subprocess.Popen(
        ["ssh", "-q", "-tt", "-F", config, "login", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def typed(cluster: Cluster, keys: str, command: str = "") -> str:
    """Type these keys into a command that must end, and return the terminal's output."""
    with terminal(cluster, command) as process:
        return process.communicate(keys, timeout=60)[0]
