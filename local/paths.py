"""Paths of files and folders below the project's `.local`, which git ignores."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCAL = ROOT / ".local"
CACHE = LOCAL / "cache"
KUBECTL = LOCAL / "bin" / "kubectl"
ENGINE = LOCAL / "engine"
"""Folder of the log and pid file of a Docker engine that `python -m local up` started."""
LOCK = LOCAL / "lock"


def stack_directory(stack: str) -> Path:
    return LOCAL / stack


def write(path: Path, content: bytes | str, mode: int = 0o600) -> None:
    """Write a file atomically, and create its parents if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.rename(path)


@contextmanager
def locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Lock a file during the `with` block. If another run holds the lock, say so, and wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting until another run releases the lock {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
