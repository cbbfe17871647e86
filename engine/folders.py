"""Temporary folders, which may contain SSH keys. A run removes folders that a killed run left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "slurmstack-engine-"
_YOUNG: Final = 60.0
"""Seconds after which the process that created a folder has certainly locked the folder."""


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder that only this user can open, and remove it afterwards.

    The folder is locked while this process lives, so that other runs do not remove the folder.
    """
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned() -> None:
    """Remove folders of this user that ended processes have left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another run uses or removes the folder
            found = folder.lstat()
            if found.st_uid == os.getuid() and found.st_mtime < time.time() - _YOUNG:
                _remove_unless_locked(folder)


def _remove_unless_locked(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)
