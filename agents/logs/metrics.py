"""Metrics of the agent that sends log lines to the log collector.

docs/metrics.md contains the same list; a test compares both.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agents.metrics import Metric

LINES = Metric(
    "slurmstack_logs_lines_total",
    "Number of log lines that the log collector has accepted from a component.",
    *("lines", ("component",), "counter"),
)
REFUSED = Metric(
    "slurmstack_logs_lines_refused_total",
    "Number of log lines that the log collector has refused. These lines are lost.",
    *("lines", (), "counter"),
)
LAST_SEND = Metric(
    "slurmstack_logs_last_send_timestamp_seconds",
    "Time at which the log collector last accepted lines.",
    "Unix time",
)
WAITING = Metric(
    "slurmstack_logs_waiting_seconds",
    "Time for which the oldest unsent log line has waited, or 0 if no line waits. It grows while "
    "the log collector accepts no lines.",
    "seconds",
)
CONTAINERS = Metric(
    "slurmstack_logs_containers", "Number of containers whose logs the agent reads.", "containers"
)
CUT = Metric(
    "slurmstack_logs_containers_cut_total",
    "Number of containers that were deleted before the agent had read their last log lines. "
    "These lines are lost.",
    *("containers", (), "counter"),
)
METRICS = (LINES, REFUSED, LAST_SEND, WAITING, CONTAINERS, CUT)


@dataclass(eq=False)
class Counts(Collector):
    """Values of the metrics. Prometheus' client library reads them with `collect`."""

    clock: Callable[[], float] = time.time
    """Unix time."""
    lines: Counter[str] = field(default_factory=Counter)
    """Number of lines by component."""
    refused: int = 0
    last_send: float | None = None
    waiting_since: float | None = None
    """Unix time, or None if no line waits."""
    containers: int = 0
    cut: int = 0

    def collect(self) -> Iterable[Family]:
        waiting = self.waiting_since
        yield LINES.family(sorted(self.lines.items()))
        yield REFUSED.value(self.refused)
        if self.last_send is not None:
            yield LAST_SEND.value(self.last_send)
        yield WAITING.value(max(0.0, self.clock() - waiting) if waiting is not None else 0)
        yield CONTAINERS.value(self.containers)
        yield CUT.value(self.cut)
