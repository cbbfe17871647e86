"""Describe metrics for Prometheus, and serve them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

Labels = str | tuple[str, ...]
"""Values of a metric's labels. For a single label, a string suffices."""


@dataclass(frozen=True)
class Metric:
    name: str
    """Name as scraped. A counter's name ends with `_total`."""
    means: str
    unit: str
    labels: tuple[str, ...] = ()
    type: Literal["counter", "gauge"] = "gauge"

    def family(self, samples: Iterable[tuple[Labels, float]]) -> Family:
        """Return the metric with its samples, in their order."""
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        family = kind(self.name, self.means, labels=self.labels)
        for labels, value in samples:
            family.add_metric((labels,) if isinstance(labels, str) else labels, value)
        return family

    def value(self, value: float) -> Family:
        return self.family([((), value)])


def serve(collector: Collector, port: int) -> WSGIServer:
    """Serve /metrics, and answer each scrape in its own daemon thread.

    Adds the process's own metrics to those of `collector`. Port 0 chooses a free port. Raises
    `OSError` if the port is unavailable.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    server, _ = start_http_server(port, registry=registry)
    return server
