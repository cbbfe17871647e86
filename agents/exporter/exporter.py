"""Read the sources of metrics, and keep the newest metrics of each source for Prometheus.

A *page* is the text with all metrics from one read of a source. A page is valid until the next read
of its source. If that read fails or is overdue, the exporter no longer sends the page. So
Prometheus marks the page's series as stale, and old values do not look current.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agents.exporter import catalogue as c
from agents.exporter.sources import ReadError, Source
from agents.say import Level, say

OVERDUE = 2
"""Maximum age of a page, in intervals of its source."""
LEAST = 1.0
"""Minimum time limit of a read in seconds."""


def page(families: Iterable[Family]) -> bytes:
    """Return metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Families(tuple(families)))
    return generate_latest(registry)


@dataclass(eq=False)
class _Families(Collector):
    families: tuple[Family, ...]

    def collect(self) -> Iterable[Family]:
        return self.families


@dataclass
class Record:
    """Results of all attempts to read a source."""

    source: Source
    every: int
    """Intervals between two reads."""
    page: bytes | None = None
    """None before the first read, or if the last read returned no metrics."""
    begun: float | None = None
    """Start of the last read with a result, on the monotonic clock."""
    took: float | None = None
    reads: int = 0
    failures: int = 0
    said: str = ""
    """Reason why the last read failed or was incomplete, or ""."""


@dataclass
class Exporter:
    """Reads the sources every `interval` seconds, and stores their pages."""

    each_time: Sequence[Source]
    in_turn: Sequence[Source]
    """Sources that take turns: the exporter reads one of them in each interval."""
    interval: float
    clock: Callable[[], float] = time.monotonic
    say: Callable[[Level, str], None] = say
    rounds: int = 0
    records: dict[str, Record] = field(init=False)
    _lock: Lock = field(default_factory=Lock)
    _process: ProcessCollector = field(
        default_factory=lambda: ProcessCollector(registry=CollectorRegistry())
    )

    def __post_init__(self) -> None:
        records = [Record(source, 1) for source in self.each_time]
        records += [Record(source, len(self.in_turn)) for source in self.in_turn]
        self.records = {record.source.name: record for record in records}

    def read(self) -> None:
        """Read the sources of this interval. If a source hangs, the sources after it get less
        time."""
        turn = self.in_turn[self.rounds % len(self.in_turn) :][:1] if self.in_turn else ()
        end = self.clock() + self.interval
        for source in (*self.each_time, *turn):
            self._read(source, max(LEAST, end - self.clock()))
        self.rounds += 1

    def _read(self, source: Source, seconds: float) -> None:
        begun, said = self.clock(), ""
        written: bytes | None
        try:
            written = page(source.read(seconds))
        except ReadError as error:
            said = str(error)
            written = page(error.rest) if error.rest else None
        record = self.records[source.name]
        if said != record.said:
            text = f"cannot read all data: {said}" if said else "the exporter reads all data again"
            self.say("error" if said else "info", f"source {source.name}: {text}")
        with self._lock:
            record.page, record.said = written, said
            record.took = self.clock() - begun
            record.reads += 1
            record.failures += bool(said)
            if written is not None:
                record.begun = begun

    def metrics(self) -> bytes:
        """Return all valid pages and the exporter's own metrics."""
        now = self.clock()
        with self._lock:
            current = {
                name: record.page
                for name, record in self.records.items()
                if record.page is not None and not self._is_overdue(record, now)
            }
            own = page(self._own(current, now))
        return b"".join((own, *current.values()))

    def _is_overdue(self, record: Record, now: float) -> bool:
        limit = OVERDUE * record.every * self.interval
        return record.begun is not None and now - record.begun > limit

    def _own(self, current: Iterable[str], now: float) -> Iterable[Family]:
        up = {name: name in current and not self.records[name].said for name in self.records}
        asked = {name: record for name, record in self.records.items() if record.reads}
        of_slurm = [name for name, record in asked.items() if record.source.is_slurm]
        yield c.UP.value(bool(of_slurm) and all(up[name] for name in of_slurm))
        yield c.READ_UP.family(up.items())
        yield c.DATA_AGE.family(
            (name, now - record.begun) for name, record in asked.items() if record.begun is not None
        )
        yield c.READ_SECONDS.family(
            (name, record.took) for name, record in asked.items() if record.took is not None
        )
        yield c.READS.family((name, record.reads) for name, record in self.records.items())
        yield c.READ_FAILURES.family(
            (name, record.failures) for name, record in self.records.items()
        )
        yield c.INTERVAL.family(
            (name, record.every * self.interval) for name, record in self.records.items()
        )
        yield from self._process.collect()
