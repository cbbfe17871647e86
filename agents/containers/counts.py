"""Count the images that jobs on a node use, for the operator's metrics.

Each step sends a report to agents/containers/listener.py, which adds up all reports of the node. A
step reports a pull if it imported an image, a hit if the image was in the cache, or a failure.
Users can forge reports, so the counts are only for graphs.
"""

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

ADDRESS: Final = "\0slurmstack-images"
"""Name of the listener's socket. `spank/containers/image.c` uses the same name. The socket is
abstract (unix(7)), because jobs have their own mount namespaces, in which they would not find a
socket with a path."""
FILE: Final = Path("/run/slurmstack/images.json")
LONGEST: Final = 64
"""Maximum size of a report in bytes."""
_MARK: Final = "images"
_MOST: Final = 1 << 50
"""Largest count. JSON and Prometheus represent every count up to this limit exactly."""
_MOST_BYTES: Final = 1 << 40
_MOST_MILLISECONDS: Final = 24 * 3_600_000
"""Largest size and duration that a report may contain, far above those of a real import."""
_MOST_PER_MILLISECOND: Final = 100_000_000
"""Limit on the bytes per millisecond in a report. No node downloads faster: a link of 400 Gb/s
carries half as much."""


@dataclass(frozen=True)
class Counts:
    """Sums of the reports on a node since slurmd started."""

    pulls: int = 0
    """Images that were imported."""
    downloaded: int = 0
    """Bytes that imports downloaded."""
    milliseconds: int = 0
    """Total duration of all imports."""
    hits: int = 0
    """Containers that started from an image in the cache."""
    failures: int = 0
    """Images that could not be found or imported."""

    def __str__(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def fields(self) -> dict[str, object]:
        """Return the counts as a member of a JSON object, for the node's `extra` field in Slurm."""
        return {_MARK: asdict(self)}

    def add(self, report: bytes) -> "Counts":
        """Return the sum of these counts and the counts of a report. Ignores a malformed report."""
        found = _read(report)
        if found is None:
            return self
        return Counts(
            *(
                min(mine + its, _MOST)
                for mine, its in zip(_values(self), _values(found), strict=True)
            )
        )


def of_extra(extra: str) -> Counts | None:
    """Return the counts in a node's `extra` field, or None if there are no counts."""
    if not extra:
        return None
    try:
        return _of_fields(json.loads(extra)[_MARK])
    except (KeyError, TypeError, ValueError):
        return None


def _of_fields(found: Any) -> Counts | None:
    names = [field.name for field in fields(Counts)]
    if not isinstance(found, dict) or sorted(found) != sorted(names):
        return None
    if not all(type(value) is int and 0 <= value <= _MOST for value in found.values()):
        return None
    return Counts(**found)


def read(file: Path = FILE) -> Counts | None:
    """Return the counts of this node, or None if there are no counts."""
    try:
        return _of_fields(json.loads(file.read_bytes()))
    except (OSError, ValueError):
        return None


def _values(counts: Counts) -> Iterable[int]:
    return asdict(counts).values()


def _read(report: bytes) -> Counts | None:
    match report.split(b" "):
        case [b"hit"]:
            return Counts(hits=1)
        case [b"failure"]:
            return Counts(failures=1)
        case [b"pull", size, time] if size.isdigit() and time.isdigit():
            return _pull(int(size), int(time))
        case _:
            return None


def _pull(size: int, milliseconds: int) -> Counts | None:
    if size > _MOST_BYTES or milliseconds > _MOST_MILLISECONDS:
        return None
    if size > max(milliseconds, 1) * _MOST_PER_MILLISECOND:
        return None
    return Counts(pulls=1, downloaded=size, milliseconds=milliseconds)


# --- Reports -------------------------------------------------------------------------------------


def report_hit() -> None:
    """Report a container that starts from an image in the cache."""
    _send("hit")


def report_failure() -> None:
    """Report an image that could not be found or imported."""
    _send("failure")


def report_pull(size: int, seconds: float) -> None:
    """Report an import, with its downloaded bytes and its duration."""
    _send(f"pull {size} {seconds * 1000:.0f}")


def _send(report: str) -> None:
    # Ignore errors, because login nodes have no listener, and the listener's queue may be full.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(report.encode(), ADDRESS)
