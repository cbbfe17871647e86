"""Run skopeo, umoci and other programs. Report their progress and errors to the user."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from agents.containers.errors import ImageError

_POLL: Final = 0.2
"""Seconds between two checks of a program."""
_FIRST_LINE: Final = 5.0
"""Seconds before the first line about progress."""
_LINES: Final = 15.0
"""Seconds between two lines about progress."""
_MESSAGE: Final = re.compile(r'level=(?:fatal|error) msg="(?P<text>(?:[^"\\]|\\.)*)"')
_PREFIX: Final = re.compile(r'^(Error parsing image name|initializing source) "?\S+: ')
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def tell(text: str) -> None:
    """Print a line for the user."""
    print(f"container: {text}", file=sys.stderr, flush=True)


def size(count: float) -> str:
    """Format a number of bytes, such as '1.2 GB'."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"


class Progress:
    """Reports the progress of a long operation. Short operations print nothing."""

    def __init__(self, what: str, total: int | None = None) -> None:
        """`total` is in bytes, or None if unknown."""
        self._what = what
        self._total = total
        self._began = time.monotonic()
        self._next = self._began + _FIRST_LINE

    def reached(self, count: int) -> None:
        """Print how many bytes are done, unless a line was printed in the last seconds."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LINES
        of_all = f" of {size(self._total)}" if self._total else ""
        tell(f"{self._what}: {size(count)}{of_all} in {now - self._began:.0f} s")


def run(
    command: Sequence[str],
    *,
    subject: str,
    written: Callable[[int], None] = lambda count: None,
    descriptors: Collection[int] = (),
    harmless: re.Pattern[str] | None = None,
) -> str:
    """Run a program and return its output. The program inherits `descriptors`.

    This function calls `written` several times a second, with the number of bytes that the program
    has written so far. If `written` raises ImageError, this function kills the program.

    If the program fails, this function raises ImageError with `subject` and the program's last
    error message. The exit code 2 is not a failure if all error messages match `harmless`.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=descriptors,
        )
    except FileNotFoundError:
        raise ImageError(
            f"{subject}: the program {command[0]} is missing in the jail: ask the cluster "
            "operator to raise 'jail.refresh'"
        ) from None
    try:
        while True:
            try:
                output, errors = process.communicate(timeout=_POLL)
                break
            except subprocess.TimeoutExpired:
                written(_written_by(process.pid))
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode == -signal.SIGKILL:
        raise ImageError(
            f"{subject}: the program {command[0]} was killed: the job probably exceeded its "
            "memory limit: request more memory with --mem"
        )
    if process.returncode != 0 and not (
        process.returncode == 2 and harmless is not None and _all_match(harmless, errors)
    ):
        raise ImageError(f"{subject}: {_last_words(errors, process.returncode)}")
    return output


def _all_match(pattern: re.Pattern[str], errors: str) -> bool:
    lines = [line for line in errors.splitlines() if line.strip()]
    return bool(lines) and all(pattern.fullmatch(line) for line in lines)


def _written_by(pid: int) -> int:
    """Return the bytes that a process has written so far, or 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), 0)


def _last_words(errors: str, code: int) -> str:
    found = _MESSAGE.findall(errors)
    if found:
        return _PREFIX.sub("", str(found[-1]).replace('\\"', '"'))
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {code}"
