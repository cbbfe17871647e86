"""Where things lie: below the project's `.local`, which git ignores."""

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
"""The Docker engine's log and pid file, where it was started from here."""
LOCK = LOCAL / "lock"


def stack_directory(stack: str) -> Path:
    """The working state of a stack."""
    return LOCAL / stack


def write(path: Path, content: bytes | str, mode: int = 0o600) -> None:
    """Writes a file whole or not at all, with parents as needed."""
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
    """Holds a lock file for as long as the context lasts; says so if it must wait for another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is under way: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
