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
"""Folders of `.local` that copies share with the checkout: Kubernetes is built once."""
_LOCK: Final = "lock"
"""File by which runs of `python -m local` take turns in these folders."""


class Scratch:
    """A copy of the checkout's tracked files, with the checkout's Python environment."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def made(cls, root: Path) -> "Scratch":
        """A new copy in the folder `root`, which must not exist."""
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        (root / ".venv").symlink_to((ROOT / ".venv").resolve())
        # make would install the requirements anew if they were younger than the environment.
        os.utime(root / "requirements-dev.txt", (0, 0))
        return cls(root)

    def share_builds(self) -> None:
        """Use the checkout's own builds of Kubernetes, and its Docker engine."""
        (self.root / ".local").mkdir()
        for name in _SHARED:
            (LOCAL / name).mkdir(parents=True, exist_ok=True)
        (LOCAL / _LOCK).touch()
        for name in (*_SHARED, _LOCK):
            (self.root / ".local" / name).symlink_to(LOCAL / name)

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """The copy with one fault. Raises StaleError."""
        path = self.root / fault.file
        before = path.read_text(encoding="utf-8")
        _write(path, fault.applied(before))
        try:
            yield
        finally:
            _write(path, before)

    def images(self) -> frozenset[str]:
        """References of the images as this copy builds them."""
        return frozenset(tags.reference(name, None, self.root) for name in tags.IMAGES)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # Python compares a source's size and its second only, and would run the code from before.
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
