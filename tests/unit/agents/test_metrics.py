"""The metrics port of an agent answers scrapes."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agents.metrics import Metric, serve
from tests.support.metrics import series

NODES = Metric("slurm_nodes", "Nodes by state.", "nodes", ("state",))


@dataclass(eq=False)
class Counted(Collector):
    states: dict[str, float]

    def collect(self) -> Iterable[Family]:
        if not self.states:
            raise ValueError("nothing is known")
        yield NODES.family(self.states.items())


@contextmanager
def served(collector: Collector) -> Iterator[str]:
    server = serve(collector, 0)
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def test_scrape_shows_current_values_and_process_metrics() -> None:
    collector = Counted({'"名前"\n\\': 1})
    with served(collector) as url:
        first = series(httpx.get(url, trust_env=False).content)
        collector.states = {"idle": 2}
        second = series(httpx.get(url, trust_env=False).content)

    assert first['slurm_nodes{state=""名前"\n\\"}'] == 1
    assert second['slurm_nodes{state="idle"}'] == 2
    assert second["process_resident_memory_bytes"] > 0


def test_failed_collection_fails_only_the_current_scrape(
    capsys: pytest.CaptureFixture[str],
) -> None:
    collector = Counted({})
    with served(collector) as url:
        assert httpx.get(url, trust_env=False).status_code == 500
        collector.states = {"idle": 2}
        assert httpx.get(url, trust_env=False).status_code == 200
    assert "nothing is known" in capsys.readouterr().err


def test_metrics_port_that_is_in_use_is_an_error() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            serve(Counted({}), other.getsockname()[1])
