"""A login node in a container, and the clients of its users."""

import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components import conventions as c
from components.identity import nodessh
from components.identity.hostkeys import host_key
from components.settings import Login
from components.slurm.loginconf import login_files
from tests.support import open_shells
from tests.support.containers import Start, put
from tests.support.slurmctld import Slurmctld
from tests.support.waiting import eventually

FIRST = Login(service="NodePort")
SEED = "a test's own"
SHOWN = (c.MUNGE_RUN, c.SLURM_RUN, c.EXTRAUSERS)
"""Directories that a login pod mounts into the jail."""
NODE_SSH = {
    f"{c.NODE_SSH}/key": host_key(SEED),
    f"{c.NODE_SSH}/known_hosts": nodessh.known_hosts(SEED),
    f"{c.NODE_SSH}/ssh_config": nodessh.ssh_config(["cpu"]),
}
"""Files of the Secret that the component `NodeSsh` creates."""


@dataclass(frozen=True)
class LoginNode:
    """A login node, and the folder of its SSH clients."""

    daemons: Slurmctld
    """The login node's container."""
    slurmctld: Slurmctld
    client: Slurmctld
    """A container for SSH clients that need not run on this machine."""
    folder: Path
    start_container: Start
    jail: str
    """Volume with the jail."""
    pipes: str
    """Volume with sssd's sockets, which slurmctld's container also mounts."""
    secret: str
    """The munge key."""

    def install(self, wanted: Login) -> None:
        """Replace all files of the settings atomically, as the kubelet does."""
        version = f"{c.LOGIN_SETTINGS}/..{uuid.uuid4().hex}"
        files = {f"{version}/{name}": text for name, text in login_files(wanted).items()}
        put(self.daemons.container, files)
        self.daemons.run(
            f"cd {c.LOGIN_SETTINGS} && ln -sfn {version} ..new && mv -T ..new ..data"
            " && for name in sshd_config limits motd state; do ln -sfn ..data/$name $name; done",
            user="root",
        )

    def edit(self, wanted: Login) -> None:
        """Install other settings, and wait until sshd uses them."""

        def reloads() -> int:
            return self.log().count("sshd reloads its settings")

        before = reloads()
        self.install(wanted)
        eventually("sshd reloads its settings", lambda: reloads() > before)
        eventually("sshd listens again", lambda: "refused" not in self.ssh("true").stderr)

    def start(self) -> None:
        self.daemons.container.exec_run(
            ["bash", "-c", f"exec {c.PROGRAMS}/sshd >>/tmp/log 2>&1"],
            user="root",
            environment={"DRAIN_GRACE": "4", "JAIL_MOUNTS": " ".join(SHOWN)},
            detach=True,
        )
        eventually("sshd listens", lambda: self.ssh("true").returncode == 0)

    def is_running(self) -> bool:
        """Whether the script that starts sshd still runs."""
        search = f"pgrep -f '[{c.PROGRAMS[0]}]{c.PROGRAMS[1:]}/serve' || true"
        return bool(self.daemons.run(search, user="root").strip())

    def log(self) -> str:
        return self.daemons.run("cat /tmp/log 2>/dev/null || true", user="root")

    def command(self, program: str, *arguments: str, user: str = "researcher") -> list[str]:
        """Return the command line of an OpenSSH program that knows this node as host `login`."""
        return [program, "-F", str(self.folder / "config"), "-o", f"User={user}", *arguments]

    def ssh(
        self, script: str = "", *options: str, user: str = "researcher", **given: Any
    ) -> subprocess.CompletedProcess[str]:
        command = self.command("ssh", *options, "login", *([script] if script else []), user=user)
        return run(command, **given)

    def beside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container `client`, which mounts the temporary files of tests."""
        code, output = open_shells.run(self.client.container, command)
        return subprocess.CompletedProcess(command, code, output)

    def answer(self, script: str, *options: str, user: str = "researcher") -> str:
        """Run a script in a user's session, which must succeed, and return the output."""
        done = self.ssh(script, *options, user=user)
        assert done.returncode == 0, f"{script}: expected exit code 0: {done}"
        return done.stdout.strip()


def run(command: Sequence[str], **given: Any) -> subprocess.CompletedProcess[str]:
    """Run a command. Its standard input is `input`, by default empty."""
    given = {"stdin": subprocess.DEVNULL, **given} if "input" not in given else given
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **given)


def make_key(folder: Path, name: str) -> str:
    """Create a key pair, and return the public key."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)])
    return (folder / f"{name}.pub").read_text().strip()
