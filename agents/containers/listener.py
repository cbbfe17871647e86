"""Count imports of images, cache hits and failures on this node.

Each step of a job reports them to the socket of this program (agents/containers/counts.py).
`python3 -BS -m agents.containers.listener` runs as long as slurmd, and writes the counts to a file.
The node's checks read this file (agents/checks/slurm.py). A start of slurmd resets the counts to 0.
"""

import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from agents.containers.counts import ADDRESS, FILE, LONGEST, Counts

_PAUSE: Final = 0.5
"""Pause in seconds between two rounds. It limits the load if a user floods the socket."""
_AT_ONCE: Final = 1000
"""Maximum number of reports in a round, so that a round ends even if a user floods the socket.
The kernel's queue is otherwise shorter than this number (sysctl net.unix.max_dgram_qlen)."""
_RETRY: Final = 10.0
"""Seconds until the next attempt if another program uses the socket's address."""


def waiting(receiver: socket.socket) -> Iterator[bytes]:
    """Wait for a report. Yield this report and all other reports in the queue."""
    receiver.setblocking(True)
    yield receiver.recv(LONGEST + 1)
    receiver.setblocking(False)
    for _ in range(_AT_ONCE):
        try:
            yield receiver.recv(LONGEST + 1)
        except BlockingIOError:
            return


def add(counts: Counts, reports: Iterable[bytes]) -> Counts:
    """Return the sum of the counts and of all reports."""
    for report in reports:
        counts = counts.add(report)
    return counts


def write(counts: Counts, file: Path) -> None:
    """Write the counts to the file, which is replaced atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    temporary.write_text(str(counts))
    temporary.replace(file)


def _bind(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    while True:
        try:
            receiver.bind(address)
        except OSError as error:
            print(
                f"cannot receive the reports of job steps about images: {error}; trying again "
                f"in {_RETRY:g} s",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(_RETRY)
        else:
            return receiver


def _try_write(counts: Counts, file: Path, *, quiet: bool) -> bool:
    """Write the file, or report an error and return False.

    An error must not end this program, because any job could then listen at its address.
    """
    try:
        write(counts, file)
    except OSError as error:
        if not quiet:
            print(
                f"cannot write the counts of images to {file}: {error}; trying again at the next "
                "report",
                file=sys.stderr,
                flush=True,
            )
        return False
    return True


def main(address: str = ADDRESS, file: Path = FILE) -> None:
    """Receive and count reports until the process is killed."""
    counts = Counts()
    written = _try_write(counts, file, quiet=False)
    with _bind(address) as receiver:
        while True:
            counts = add(counts, waiting(receiver))
            written = _try_write(counts, file, quiet=not written)
            time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
