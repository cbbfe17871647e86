"""What Slurm's commands show, as data; and what runs on the login node and in jobs alike."""

import contextlib
import shlex
import subprocess
from collections.abc import Iterator

from tests.support.cluster import Cluster

NODES = ("cpu-0", "cpu-1")
PLACES = ("login-0", *NODES)
"""Where users' programs run."""


def fields(text: str) -> dict[str, str]:
    """The `Key=Value` words of a record of `scontrol show`."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def show(cluster: Cluster, what: str) -> dict[str, str]:
    """One record of `scontrol show`."""
    return fields(cluster.run(f"scontrol --oneliner show {what}"))


def at(place: str, script: str) -> str:
    """The command that runs a script on the login node, or on another in a job of its own."""
    return script if place == "login-0" else f"srun --nodelist={place} sh -c {shlex.quote(script)}"


def everywhere(cluster: Cluster, script: str) -> dict[str, str]:
    """What a script says on the login node and, in jobs, on the others."""
    return {place: cluster.run(at(place, script)) for place in PLACES}


def one(answers: dict[str, str]) -> str:
    """The one answer that all places gave."""
    assert len(set(answers.values())) == 1, answers
    return next(iter(answers.values()))


def write(cluster: Cluster, path: str, text: str) -> None:
    cluster.run(f"cat >{path} <<'END-OF-FILE'\n{text}\nEND-OF-FILE")


@contextlib.contextmanager
def terminal(cluster: Cluster, command: str = "") -> Iterator[subprocess.Popen[str]]:
    """A command of the user's on a terminal of its own, or a session; hung up afterwards."""
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
    """What the terminal shows when these keys are typed into a command, which must end by them."""
    with terminal(cluster, command) as process:
        return process.communicate(keys, timeout=60)[0]
