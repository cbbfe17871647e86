"""Metrics about the newest value of each check and node.

Each request of Prometheus reads the values from the time series. docs/metrics.md contains the same
list of metrics, and a test compares both lists.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agents.longchecks.judge import Rule, Verdict
from agents.longchecks.series import Record, Series
from agents.longchecks.wanted import Wanted
from agents.metrics import Metric
from agents.say import say

_LABELS = ("check", "node")
VALUE = Metric(
    "slurmstack_longcheck_value",
    "Newest value that a long check measured on a node.",
    "the check's",
    _LABELS,
)
TIMESTAMP = Metric(
    "slurmstack_longcheck_timestamp_seconds",
    "Time at which the measurement started that gave a long check's newest value on a node.",
    *("Unix time", _LABELS),
)
GOOD = Metric(
    "slurmstack_longcheck_good",
    "1 if a long check's newest value on a node is good, 0 if it is bad. This metric is "
    "absent if no limit applied to the value.",
    *("", _LABELS),
)
MINIMUM = Metric(
    "slurmstack_longcheck_minimum",
    "Threshold below which a long check's value is bad. This metric is absent if the check "
    "has no such threshold.",
    "the check's",
    _LABELS,
)
MAXIMUM = Metric(
    "slurmstack_longcheck_maximum",
    "Threshold above which a long check's value is bad. Only checks that count faults have this "
    "metric.",
    "the check's",
    _LABELS,
)
METRICS = (VALUE, TIMESTAMP, GOOD, MINIMUM, MAXIMUM)


@dataclass(frozen=True)
class Last:
    """A node's newest measurement that gave a value, and the rule of the current settings."""

    check: str
    node: str
    record: Record
    rule: Rule


def newest(wanted: Wanted, series: Series, say: Callable[[str], None]) -> Iterator[Last]:
    """Yield the newest measurement for each enabled check and each of its nodes.

    Report invalid files with `say`, and skip them.
    """
    for name in sorted(wanted.checks):
        check = wanted.check(name)
        for node in wanted.nodes(check):
            try:
                record = series.newest(name, node)
            except ValueError as error:
                say(str(error))
                continue
            if record:
                yield Last(name, node, record, wanted.rule(check, node))


def families(found: Iterable[Last]) -> Iterator[Family]:
    measurements = [((one.check, one.node), one.record, one.rule) for one in found]
    judged = {Verdict.GOOD: 1, Verdict.BAD: 0}
    yield VALUE.family(
        (labels, record.value) for labels, record, _ in measurements if record.value is not None
    )
    yield TIMESTAMP.family((labels, record.at) for labels, record, _ in measurements)
    yield GOOD.family(
        (labels, judged[record.verdict])
        for labels, record, _ in measurements
        if record.verdict in judged
    )
    for metric, is_minimum in ((MINIMUM, True), (MAXIMUM, False)):
        yield metric.family(
            (labels, rule.threshold)
            for labels, _, rule in measurements
            if rule.threshold is not None and rule.higher_is_better is is_minimum
        )


@dataclass(eq=False)
class Newest(Collector):
    """Collector for Prometheus. Each scrape reads the settings and the series.

    A scrape fails if it cannot read the settings or a series.
    """

    settings: Path
    """File with the settings."""
    folder: Path
    """Folder of the series."""

    def collect(self) -> Iterable[Family]:
        wanted = Wanted.model_validate_json(self.settings.read_bytes())
        return families(newest(wanted, Series(self.folder), partial(say, "error")))
