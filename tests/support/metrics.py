"""Parse metrics as Prometheus does."""

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from agents.exporter.exporter import page

Series = dict[str, float]
"""Values by series, written as in a query: `slurm_nodes{state="idle"}`."""


def series(families: Iterable[Family] | bytes) -> Series:
    """Parse metrics with Prometheus' client library."""
    text = (families if isinstance(families, bytes) else page(families)).decode()
    return {
        sample.name + labels(sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(given: dict[str, str]) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in sorted(given.items()))
    return f"{{{inner}}}" if inner else ""
