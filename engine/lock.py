"""Lock a stack with Pulumi's lock files, so that only one update runs at a time.

The `pulumi` command respects these locks too.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backend import write_atomically
from engine.errors import EngineError
from engine.state import now


@dataclass(frozen=True)
class Holder:
    """The holder of a lock, read from the lock file."""

    file: Path
    pid: int
    user: str
    host: str
    since: str

    @property
    def gone(self) -> bool:
        """Whether the holder's process has ended.

        False for another host's process, because this host cannot check it.
        """
        return self.host == socket.gethostname() and not _alive(self.pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def locked(directory: Path) -> Iterator[Path]:
    """Lock the stack that keeps its lock files in ``directory``.

    Remove lock files that ended processes of this host have left. Raises EngineError with the
    holder if another update runs.
    """
    own = directory / f"{uuid.uuid4()}.json"
    _refuse_if_held(directory, own)
    content = {
        "pid": os.getpid(),
        "username": getpass.getuser(),
        "hostname": socket.gethostname(),
        "timestamp": now(),
    }
    write_atomically(own, json.dumps(content))
    try:
        # Check again: if two updates start together, each one sees the lock of the other and stops.
        _refuse_if_held(directory, own)
        yield own
    finally:
        own.unlink(missing_ok=True)


def _refuse_if_held(directory: Path, own: Path) -> None:
    for file in sorted(directory.glob("*.json")):
        if file == own:
            continue
        holder = _read(file)
        if holder is None:
            continue
        if holder.gone:
            file.unlink(missing_ok=True)
            continue
        raise EngineError(
            f"the stack is locked by an update of {holder.user}@{holder.host} (process"
            f" {holder.pid}) since {holder.since}; wait until this update has ended, or, if this"
            f" process no longer exists on {holder.host}, delete {file}"
        )


def _read(file: Path) -> Holder | None:
    """Return the holder, or None if the lock was released meanwhile."""
    try:
        content: Any = json.loads(file.read_text())
        return Holder(
            file,
            int(content["pid"]),
            str(content.get("username")),
            str(content.get("hostname")),
            str(content.get("timestamp")),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise EngineError(
            f"{file}: the lock file cannot be read ({error}); if no update of this stack is"
            " running, delete the file"
        ) from error
