"""A container that backs up and restores folders, with the rights of the pods that do so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from docker.models.containers import Container

from components import conventions as c
from components.settings import Settings
from components.slurmconf import backup_environment
from tests.support import open_shells
from tests.support.accounting import accounted
from tests.support.containers import Start, put

ROOT = f"{c.PROGRAMS}/root"
FOLDERS = {"jail": f"{ROOT}{c.JAIL}", "projects": f"{ROOT}{c.JAIL_VOLUMES}/jail-projects"}
"""Folders of this container by the names of their parts."""
STORE = f"{ROOT}{c.BACKUP_DATA}"
PASSWORD = "open-sesame"
PARTS = f"projects={c.JAIL_VOLUMES}/jail-projects jail={c.JAIL}"
RIGHTS = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "MKNOD", "SETFCAP"),
    "SYS_CHROOT",
)
"""Capabilities of the container that backs up, and of the one that restores."""


@dataclass(frozen=True)
class Box:
    container: Container
    config: Settings

    def run(self, command: str, **environment: str) -> tuple[int, str]:
        """Run a command of `agents.backup`. Return its exit code and output."""
        code, output = open_shells.run(
            self.container,
            f"python3 -m agents.backup {command}",
            environment=self.environment(environment),
        )
        return code, output.strip()

    def environment(self, changes: Mapping[str, str] = {}) -> dict[str, str]:
        return {**backup_environment(self.config), "ROOT": ROOT, **changes}

    def shell(self, command: str) -> str:
        """Return the output of a shell command of root."""
        code, output = open_shells.run(self.container, command)
        assert code == 0, output
        return output.strip()

    def begin(self, command: str, **environment: str) -> None:
        """Start a command without waiting for it."""
        self.container.exec_run(
            ["bash", "-c", f"exec python3 -m agents.backup {command} >/tmp/log 2>&1"],
            environment=self.environment(environment),
            detach=True,
        )

    def kill(self) -> None:
        """Kill all running programs."""
        self.shell("pkill -KILL -x python3; pkill -KILL -x restic; true")

    def back_up(self, identity: str, **environment: str) -> str:
        """Make a set of the folders. Return the output."""
        code, output = self.run(f"set-files {PARTS}", SET=identity, **environment)
        assert code == 0, output
        return output

    def restore(self, **environment: str) -> str:
        code, output = self.run(f"restore-files {PARTS}", **{"RESTORE": "latest", **environment})
        assert code == 0, output
        return output

    def empty(self) -> None:
        """Remove all files of the folders."""
        for folder in FOLDERS.values():
            self.shell(f"find {folder} -mindepth 1 -delete")

    def restic(self, command: str) -> str:
        code, output = open_shells.run(
            self.container,
            f"restic --no-cache -r {STORE}/sets/test {command}",
            environment={"RESTIC_PASSWORD": PASSWORD},
        )
        assert code == 0, output
        return output


def box(start: Start, **options: Any) -> Box:
    """Start a container with empty folders and a new store."""
    config = accounted(lambda values: values.update(backup={"password_secret": "backup"}))
    tmpfs = dict.fromkeys((f"{ROOT}/tmp", f"{ROOT}{c.BACKUP_RUN}", STORE), "")
    container = start(
        "backup",
        entrypoint="",
        cap_drop=["ALL"],
        cap_add=[*RIGHTS, "KILL"],
        tmpfs={**tmpfs, **options.pop("tmpfs", {})},
        volumes=[*FOLDERS.values()],
        **options,
    )
    put(container, {f"{c.BACKUP_PASSWORD}/password": PASSWORD})
    return Box(container, config)
