"""Containers that run the Jobs of the jail on volumes of any size."""

import contextlib
import uuid
from dataclasses import dataclass
from typing import Any

from docker.models.containers import Container

from components import conventions as c
from components.storage.jail import ANY_OWNER
from local import host
from tests.support import open_shells
from tests.support.containers import Start

# Add SYS_CHROOT, which the Job does not have: tests need it to run commands in the jail.
RIGHTS = {"cap_drop": ["ALL"], "cap_add": [*ANY_OWNER, "SYS_CHROOT"]}
# The tests remove these files (0.5 GB) from the image, so that no test copies them to a jail.
COMPILERS = (
    "/usr/lib/gcc /usr/libexec/gcc /usr/include /usr/lib/x86_64-linux-gnu/lib[A-Za-z]*san.so* "
    "/usr/lib/x86_64-linux-gnu/*.a /usr/lib/x86_64-linux-gnu/perl /usr/share/perl /usr/share/doc "
    "/usr/bin/gdb /usr/bin/x86_64-linux-gnu-* /usr/lib/git-core /usr/lib/python3/dist-packages"
)


@dataclass(frozen=True)
class Shell:
    """A container that runs the command of a Job, with the jail at the Job's path."""

    container: Container

    def run(self, command: str, **options: Any) -> tuple[int, str]:
        """Run a shell command as root with the capabilities of a Job. Return code and output."""
        return open_shells.run(self.container, command, **options)

    def answer(self, command: str, **options: Any) -> str:
        code, output = self.run(command, **options)
        assert code == 0, f"{command}: exit code {code}; output: {output}"
        return output.strip()

    def populate(self, refresh: int, *submounts: str) -> tuple[int, str]:
        settings = {"JAIL_REFRESH": str(refresh), "JAIL_SUBMOUNTS": " ".join(submounts)}
        return self.run(f"{c.PROGRAMS}/populate", environment=settings)

    def inside(self, command: str) -> str:
        """Return the output of a command in the jail."""
        return self.answer(f"chroot {c.JAIL} {command}")

    def contents(self) -> str:
        """Return a digest of the jail's paths, metadata and contents, without populate's files."""
        return self.answer(
            f"cd {c.JAIL} && find . -path ./var/lib/slurmstack -prune -o "
            "-printf '%p %y %m %U %G %l\\n' | sort | sha256sum; "
            "find . -path ./var/lib/slurmstack -prune -o -type f -print0 | sort -z | "
            "xargs -0 sha256sum | sha256sum"
        )


class Volumes:
    """Create volumes, and containers that mount them. A volume with a size is in memory."""

    def __init__(self, start: Start, stack: contextlib.ExitStack) -> None:
        self._start = start
        self._stack = stack

    def make(self, size: str | None = None) -> str:
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size}"}
        volume = host.engine(print).volumes.create(
            f"storage-{uuid.uuid4().hex[:8]}", driver_opts=options if size else {}
        )
        self._stack.callback(volume.remove, force=True)
        return str(volume.name)

    def shell(self, volume: str, image: str = "jail", **options: Any) -> Shell:
        """Start a container that mounts a volume. Remove COMPILERS from the jail image."""
        options = {"entrypoint": "", **RIGHTS, **options}
        shell = Shell(self._start(image, volumes={volume: {"bind": c.JAIL}}, **options))
        if image == "jail":
            shell.answer(f"rm -rf {COMPILERS}")
        return shell
