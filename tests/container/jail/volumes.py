"""Containers that run the commands of the jail's Jobs, on volumes of any size."""

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

# Only the tests have SYS_CHROOT, not the Job: they look into the jail like users.
RIGHTS = {"cap_drop": ["ALL"], "cap_add": [*ANY_OWNER, "SYS_CHROOT"]}
# Remove these 0.5 GB: every test would copy them, and no test needs them.
COMPILERS = (
    "/usr/lib/gcc /usr/libexec/gcc /usr/include /usr/lib/x86_64-linux-gnu/lib[A-Za-z]*san.so* "
    "/usr/lib/x86_64-linux-gnu/*.a /usr/lib/x86_64-linux-gnu/perl /usr/share/perl /usr/share/doc "
    "/usr/bin/gdb /usr/bin/x86_64-linux-gnu-* /usr/lib/git-core /usr/lib/python3/dist-packages"
)


@dataclass(frozen=True)
class Shell:
    """A container that runs a Job's command, with the jail at the same path as in the Job."""

    container: Container

    def run(self, command: str, **options: Any) -> tuple[int, str]:
        """Return exit code and output of root's shell command, with only the rights of a Job."""
        return open_shells.run(self.container, command, **options)

    def answer(self, command: str, **options: Any) -> str:
        code, output = self.run(command, **options)
        assert code == 0, f"{command}: {output}"
        return output.strip()

    def populate(self, refresh: int, *submounts: str) -> tuple[int, str]:
        settings = {"JAIL_REFRESH": str(refresh), "JAIL_SUBMOUNTS": " ".join(submounts)}
        return self.run(f"{c.PROGRAMS}/populate", environment=settings)

    def inside(self, command: str) -> str:
        """Return the output of a command in the jail."""
        return self.answer(f"chroot {c.JAIL} {command}")

    def contents(self) -> str:
        """Return a digest of the jail's paths, metadata and contents, except populate's own."""
        return self.answer(
            f"cd {c.JAIL} && find . -path ./var/lib/slurmstack -prune -o "
            "-printf '%p %y %m %U %G %l\\n' | sort | sha256sum; "
            "find . -path ./var/lib/slurmstack -prune -o -type f -print0 | sort -z | "
            "xargs -0 sha256sum | sha256sum"
        )


class Volumes:
    """Create volumes (in memory if a size is given), and containers that mount them."""

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
        """Start a container of an image with a volume. Remove the compilers from the jail image."""
        options = {"entrypoint": "", **RIGHTS, **options}
        shell = Shell(self._start(image, volumes={volume: {"bind": c.JAIL}}, **options))
        if image == "jail":
            shell.answer(f"rm -rf {COMPILERS}")
        return shell
