"""Copies of the checkout, in which faults are applied."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from images import tags
from local.paths import LOCAL, ROOT
from tests.mutants.fault import Fault

_SHARED: Final = ("bin", "cache", "engine")
"""Folders of `.local` that copies share with the checkout, so that Kubernetes is built once."""
_LOCK: Final = "lock"
"""Lock file that runs of `python -m local` take while they use these folders."""


class Scratch:
    """A copy of the checkout's tracked files, with the checkout's Python environment."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def made(cls, root: Path) -> "Scratch":
        """Create a new copy in the folder `root`, which must not exist."""
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        (root / ".venv").symlink_to((ROOT / ".venv").resolve())
        # Make the list of requirements look old. If it were newer than the environment, make would
        # install the requirements again.
        os.utime(root / "requirements-dev.txt", (0, 0))
        return cls(root)

    def share_builds(self) -> None:
        """Use the checkout's builds of Kubernetes, and the checkout's Docker engine."""
        (self.root / ".local").mkdir()
        for name in _SHARED:
            (LOCAL / name).mkdir(parents=True, exist_ok=True)
        (LOCAL / _LOCK).touch()
        for name in (*_SHARED, _LOCK):
            (self.root / ".local" / name).symlink_to(LOCAL / name)

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """Apply one fault to the copy for the duration of the `with` block. Raises StaleError."""
        path = self.root / fault.file
        before = path.read_text(encoding="utf-8")
        _write(path, fault.applied(before))
        try:
            yield
        finally:
            _write(path, before)

    def images(self) -> frozenset[str]:
        """Return references of the images as this copy builds them."""
        return frozenset(tags.reference(name, None, self.root) for name in tags.IMAGES)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # Remove compiled code. Python compares only size and mtime (in seconds) of a source file. So it
    # would not notice a change that keeps the size, if both versions were written in one second.
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
