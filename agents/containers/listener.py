"""Add up what steps on this node report about images.

`python3 -BS -m agents.containers.listener` runs as long as slurmd, and keeps the counts in a file
that the node's checks read (agents/checks/slurm.py). Counts begin at 0 when slurmd starts.
"""

import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from agents.containers.counts import ADDRESS, FILE, LONGEST, Counts

_PAUSE: Final = 0.5
"""Seconds between two rounds: a user who floods the socket costs the node no more than a round."""
_AT_ONCE: Final = 1000
"""Reports of a round; the kernel's queue is shorter (net.unix.max_dgram_qlen)."""
_RETRY: Final = 10.0
"""Seconds until the next attempt if a program has taken the address."""


def waiting(receiver: socket.socket) -> Iterator[bytes]:
    """Wait for a report; return it and those that came meanwhile."""
    receiver.setblocking(True)
    yield receiver.recv(LONGEST + 1)
    receiver.setblocking(False)
    for _ in range(_AT_ONCE):
        try:
            yield receiver.recv(LONGEST + 1)
        except BlockingIOError:
            return


def add(counts: Counts, reports: Iterable[bytes]) -> Counts:
    """Return the counts with all reports added."""
    for report in reports:
        counts = counts.add(report)
    return counts


def write(counts: Counts, file: Path) -> None:
    """Replace the file: a reader sees the old counts or the new ones."""
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
            print(f"cannot count images: {error}; trying again", file=sys.stderr, flush=True)
            time.sleep(_RETRY)
        else:
            return receiver


def main(address: str = ADDRESS, file: Path = FILE) -> None:
    """Count until the process is ended."""
    counts = Counts()
    write(counts, file)
    with _bind(address) as receiver:
        while True:
            counts = add(counts, waiting(receiver))
            write(counts, file)
            time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
