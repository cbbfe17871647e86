"""The exporter's HTTP server answers scrapes and probes."""

import threading
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.core import GaugeMetricFamily

from agents.exporter.exporter import Exporter
from agents.exporter.server import Server
from agents.exporter.sources import Source
from tests.support.metrics import series


def exporter() -> Exporter:
    source = Source("nodes", lambda _: [GaugeMetricFamily("slurm_nodes", "名前", value=3)])
    return Exporter([source], [], 30)


class Running:
    def __init__(self) -> None:
        self.alive = True
        self.exporter = exporter()
        self.server = Server(self.exporter, 0, lambda: self.alive)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=headers, trust_env=False)


@pytest.fixture
def running() -> Iterator[Running]:
    found = Running()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_scrape_returns_the_result_of_the_last_read(running: Running, encoding: str) -> None:
    running.exporter.read()
    answer = running.get("/metrics?x=y", **{"Accept-Encoding": encoding})

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert answer.headers.get("Content-Encoding", "identity") == encoding
    found = series(answer.content)
    assert (found["slurm_nodes"], found["slurm_up"]) == (3, 1)


def test_server_is_ready_after_the_first_attempt_to_read(running: Running) -> None:
    assert running.get("/ready").status_code == 503
    running.exporter.read()
    assert running.get("/ready").status_code == 200


def test_server_is_alive_while_reads_continue(running: Running) -> None:
    assert running.get("/alive").status_code == 200
    running.alive = False
    assert running.get("/alive").status_code == 503


def test_other_paths_return_404_and_point_to_metrics(running: Running) -> None:
    answer = running.get("/")
    assert (answer.status_code, answer.text) == (404, "see /metrics\n")
