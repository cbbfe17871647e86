"""The log agent provides the right metrics."""

from agents.exporter.exporter import page
from agents.logs.metrics import METRICS, Counts
from tests.support.metrics import series


def scraped(counts: Counts) -> dict[str, float]:
    return dict(series(page(counts.collect())))


def test_catalogue_matches_the_exported_metrics() -> None:
    counts = Counts(last_send=1)
    shown = [(family.name, family.type) for family in counts.collect()]

    assert shown == [(metric.name.removesuffix("_total"), metric.type) for metric in METRICS]


def test_waiting_time_grows_while_a_line_waits() -> None:
    now = 1000.0
    counts = Counts(clock=lambda: now)
    assert scraped(counts)["slurmstack_logs_waiting_seconds"] == 0
    counts.waiting_since = 400.0
    assert scraped(counts)["slurmstack_logs_waiting_seconds"] == 600


def test_last_send_time_has_no_series_before_the_first_send() -> None:
    name = "slurmstack_logs_last_send_timestamp_seconds"
    assert name not in scraped(Counts())
    assert scraped(Counts(last_send=5))[name] == 5
