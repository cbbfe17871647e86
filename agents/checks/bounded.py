"""Run tasks that may hang, all at the same time, each with a time limit.

Each task runs in a child process. When a child exceeds its time limit, the function `run` kills the
child and its descendants. `run` does not wait for their end, because a process that hangs in the
kernel may take long to die.

Each task has a lock file. A child locks this file before it starts the task. The kernel releases
the lock when the child dies. So at most one child of each task can hang in the kernel.
"""

import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MISSING = 127
"""Exit code for a missing command, the same as in a shell."""
_MOST = 8 * 1024 * 1024
"""Maximum output of a child in bytes. `run` treats a child with more output as timed out."""
_CHUNK = 1 << 16
_DESCRIPTORS = 1 << 16
"""The numbers of this process's open file descriptors are below this limit."""

Task = tuple[float, Sequence[str] | Callable[[], str]]
"""Time limit in seconds, and a command or a function that returns the text."""


@dataclass(frozen=True)
class Reading:
    """Output and exit code of a child."""

    text: str
    said: str = ""
    """Output on stderr."""
    code: int = 0
    """Exit code; negative if a signal ended the child."""


def run(tasks: Mapping[str, Task], locks: Path) -> dict[str, Reading | None]:
    """Run tasks, and return their readings by name, or None for a task that timed out."""
    running = {name: _Child(task, locks / f"{name}.lock") for name, task in tasks.items()}
    found: dict[str, Reading | None] = {}
    while running:
        _await(running.values())
        for name, child in list(running.items()):
            child.read()
            reading = child.reap()
            if reading or child.is_over():
                found[name] = reading
                child.bury()
                del running[name]
    return found


class _Child:
    def __init__(self, task: Task, lock: Path) -> None:
        self.until = time.monotonic() + task[0]
        out, err = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(task[1], lock, out[1], err[1])
        self.texts = {out[0]: bytearray(), err[0]: bytearray()}
        self.open = {out[0], err[0]}
        self.end = os.pidfd_open(self.pid)
        os.close(out[1])
        os.close(err[1])
        for pipe in self.texts:
            os.set_blocking(pipe, False)

    def read(self) -> None:
        for pipe in list(self.open):
            with suppress(BlockingIOError):
                while chunk := os.read(pipe, _CHUNK):
                    self.texts[pipe] += chunk
                    if self._size() > _MOST:
                        return
                self.open.remove(pipe)

    def reap(self) -> Reading | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.read()  # the child may have written more output before it ended
        out, err = (text.decode(errors="replace") for text in self.texts.values())
        return Reading(out, err, os.waitstatus_to_exitcode(status))

    def is_over(self) -> bool:
        return time.monotonic() >= self.until or self._size() > _MOST

    def bury(self) -> None:
        """Kill the child and its remaining descendants, and close its descriptors."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for descriptor in (self.end, *self.texts):
            os.close(descriptor)

    def _size(self) -> int:
        return sum(map(len, self.texts.values()))


def _await(children: Collection[_Child]) -> None:
    """Wait until a child writes output, ends or times out."""
    events = select.poll()
    for child in children:
        for descriptor in (child.end, *child.open):
            events.register(descriptor, select.POLLIN)
    left = min(child.until for child in children) - time.monotonic()
    events.poll(max(0, left * 1000))


def _become(task: Sequence[str] | Callable[[], str], lock: Path, out: int, err: int) -> None:
    """Turn this process into the child. Never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        # A child that hangs keeps its files open. So it must have no descriptors of the parent,
        # which may be locks of other tasks.
        os.closerange(3, _DESCRIPTORS)
        held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        os.set_inheritable(held, True)
        fcntl.flock(held, fcntl.LOCK_EX)
        if callable(task):
            _write(1, task())
            code = 0
        else:
            os.execvp(task[0], tuple(task))  # noqa: S606  # needs no shell
    except FileNotFoundError as error:
        code = 1 if callable(task) else MISSING
        _write(2, str(error))
    except BaseException as error:  # no exception may reach the parent's code
        _write(2, f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _write(descriptor: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(descriptor, data) :]
