"""Run commands that end cleanly after an interruption."""

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ORDERLY: Final = 60
"""Seconds that pytest gets to remove its containers after an interruption."""
TAIL: Final = 20
"""Number of output lines to show for an error, from the end."""


class InterruptedRunError(Exception):
    """The user has interrupted the run, so no more commands start."""


@dataclass(frozen=True)
class Ended:
    """Result of a command that has ended."""

    code: int | None
    """Exit code; None if the command exceeded its time limit."""
    log: Path

    @property
    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL:])


class Commands:
    """Runs commands from several threads, each command in its own session.

    Because of these sessions, Ctrl-C in the terminal does not reach the commands. `interrupt` ends
    the commands.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._interrupted = False

    def run(self, command: Sequence[str], folder: Path, log: Path, seconds: float) -> Ended:
        """Run a command to its end or its time limit. Raises InterruptedRunError."""
        with log.open("wb") as output, self._lock:
            if self._interrupted:
                raise InterruptedRunError
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            code = None
        finally:
            with self._lock:
                self._running.discard(process)
        if self._interrupted:
            raise InterruptedRunError
        return Ended(code, log)

    def interrupt(self) -> None:
        """End all running commands; later calls of `run` start no command."""
        with self._lock:
            self._interrupted = True
            running = tuple(self._running)
        for process in running:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children; try SIGINT first, like Ctrl-C."""
    for number, seconds in ((signal.SIGINT, ORDERLY), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
