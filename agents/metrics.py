"""Metrics for Prometheus: what one is called and means, and a port at which they are scraped."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

Labels = str | tuple[str, ...]
"""Values of a metric's labels; of the only one, itself."""


@dataclass(frozen=True)
class Metric:
    name: str
    """As it is scraped; a counter's ends with `_total`."""
    means: str
    unit: str
    labels: tuple[str, ...] = ()
    type: Literal["counter", "gauge"] = "gauge"

    def family(self, samples: Iterable[tuple[Labels, float]]) -> Family:
        """The metric with values, in the order that they come in."""
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        family = kind(self.name, self.means, labels=self.labels)
        for labels, value in samples:
            family.add_metric((labels,) if isinstance(labels, str) else labels, value)
        return family

    def value(self, value: float) -> Family:
        """The metric, which has no labels, with its value."""
        return self.family([((), value)])


def serve(collector: Collector, port: int) -> WSGIServer:
    """Answers scrapes at /metrics from now on, each in a thread of its own that holds up nobody.

    To what is collected it adds the process' own metrics. `port` 0 is one that is free. Raises
    `OSError` where the port is not to be had.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    server, _ = start_http_server(port, registry=registry)
    return server
