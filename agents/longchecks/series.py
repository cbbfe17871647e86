"""Time series: one file per check and node, with one JSON line for each of the newest measurements.

Only the pods of long checks mount the volume of the files, so jobs and users cannot access it.
Files are replaced atomically: readers see the old or the new file, and a killed writer leaves no
partial file. Writers hold a lock, so parallel writers lose no measurement.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from os import SEEK_END
from pathlib import Path

from agents.longchecks.judge import Verdict

TAIL = 16 * 1024
"""Number of bytes at the end of a file that are searched for the newest value. These bytes
contain about fifty measurements."""
Target = tuple[str, ...]
"""Names of the nodes of a measurement: one node, or a pair."""


@dataclass(frozen=True)
class Record:
    """Measurement, stored in the series of each of its nodes."""

    at: int
    """Start of the measurement in seconds since 1970."""
    run: str
    nodes: Target
    value: float | None
    unit: str
    verdict: Verdict
    text: str
    """Measured and expected values, or the reason why there is no value."""

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str | bytes) -> "Record":
        """Parse a line of a file. Raises `ValueError` if the line is invalid."""
        try:
            fields = json.loads(line)
            fields |= {"nodes": tuple(fields["nodes"]), "verdict": Verdict(fields["verdict"])}
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"a line is not a valid record: {error}") from error


class BusyError(Exception):
    """Another process already runs the check. The message is one line."""


@contextmanager
def alone(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock `path` during the context.

    If another process holds the lock, wait for it, or raise `BusyError` if `wait` is false.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            flock(file, LOCK_EX if wait else LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"long check {path.parent.name}: another run of this check is in progress; "
                "wait until that run ends"
            ) from None
        yield


def replace(path: Path, text: str) -> None:
    """Replace a file atomically, after the new content is complete and on disk."""
    new = path.with_name(f".{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _broken(path: Path, error: ValueError) -> ValueError:
    return ValueError(
        f"{path}: cannot read the earlier measurements: {error}; move this file away to start a "
        "new series"
    )


class Series:
    """Series in a folder, each with its newest `keep` measurements."""

    def __init__(self, folder: Path, keep: int = 100) -> None:
        self.folder = folder
        self.keep = keep

    def nodes(self, check: str) -> list[str]:
        """Return the names of the nodes that have measurements, sorted."""
        return sorted(path.stem for path in (self.folder / check).glob("*.jsonl"))

    def of(self, check: str, node: str) -> list[Record]:
        """Return a node's measurements, oldest first. Raises `ValueError` for an invalid file."""
        path = self._path(check, node)
        if not path.exists():
            return []
        try:
            return [Record.parse(line) for line in path.read_text().splitlines()]
        except ValueError as error:
            raise _broken(path, error) from None

    def newest(self, check: str, node: str) -> Record | None:
        """Return the newest measurement with a value in the last `TAIL` bytes of a node's file.

        Raises `ValueError` if this part is invalid.
        """
        path = self._path(check, node)
        if not path.exists():
            return None
        with path.open("rb") as file:
            size = file.seek(0, SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().splitlines()
        try:
            # The first line may be incomplete.
            records = map(Record.parse, reversed(lines[size > TAIL :]))
            return next((record for record in records if record.value is not None), None)
        except ValueError as error:
            raise _broken(path, error) from None

    def values(self, check: str, node: str) -> list[float]:
        """Return a node's values, oldest first.

        Bad values are left out, because they must not change the usual value with which new values
        are compared.
        """
        sound = (Verdict.GOOD, Verdict.UNJUDGED)
        found = self.of(check, node)
        return [r.value for r in found if r.value is not None and r.verdict in sound]

    def add(self, check: str, record: Record) -> None:
        """Add a measurement to the series of each of its nodes.

        Skips a series that already has the measurement.
        """
        folder = self.folder / check
        with alone(folder / ".lock", wait=True):
            for node in record.nodes:
                records = self.of(check, node)
                if any((r.run, r.nodes) == (record.run, record.nodes) for r in records):
                    continue
                lines = [str(r) for r in (*records, record)][-self.keep :]
                replace(self._path(check, node), "".join(f"{line}\n" for line in lines))

    def of_run(self, check: str, run: str, nodes: Sequence[str]) -> dict[Target, Record]:
        """Return the measurements of a run that are in the series of every measured node."""
        of_nodes = {node: [r for r in self.of(check, node) if r.run == run] for node in nodes}
        found = {record.nodes: record for records in of_nodes.values() for record in records}
        return {
            target: record
            for target, record in found.items()
            if all(any(r.nodes == target for r in of_nodes.get(node, ())) for node in target)
        }

    def _path(self, check: str, node: str) -> Path:
        return self.folder / check / f"{node}.jsonl"
