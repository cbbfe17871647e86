"""Faults that become one by lasting, told to whoever must know of them: `make soak`."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.e2e.cluster import Cluster, eventually
from tests.e2e.health import faults
from tests.e2e.health.conftest import Node
from tests.e2e.health.watching import Watch, impatient, watched

pytestmark = pytest.mark.soak
PACE = 10
"""How many times as fast as in the alerts' own files time runs in these tests."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@pytest.fixture(scope="module")
def watch(cluster: Cluster) -> Iterator[Watch]:
    with watched(cluster, lambda text: hastened(impatient(text))) as found:
        yield found


def hastened(text: str) -> str:
    """The same file, with each range and each limit in seconds shorter."""

    def range_(found: re.Match[str]) -> str:
        return f"{found[1]}{max(int(found[2]) * _UNITS[found[3]] // PACE, 30)}s"

    text = re.sub(r"(\[|\boffset )(\d+)([smhd])(?=\]|\s)", range_, text)
    return re.sub(r"(_seconds\S*) > (\d{3,})\b", lambda m: f"{m[1]} > {int(m[2]) // PACE}", text)


FAULTS: dict[str, Callable[[Cluster], AbstractContextManager[None]]] = {
    "SlurmNodesDown": faults.silent_nodes,
    "SlurmNodeFlapping": faults.flapping,
    "SlurmAccountingNotWritten": faults.records_that_wait,
    "SlurmQueueStuck": faults.blocked_queue,
    "MonitoringConfigRefused": faults.refused_configuration,
    "SlurmLogsNotSent": faults.away_collector,
}


@pytest.mark.parametrize("alert", FAULTS)
def test_a_fault_that_lasts_is_told(watch: Watch, node: Node, alert: str) -> None:
    with FAULTS[alert](watch.cluster):
        eventually(f"{alert} is told", lambda: watch.is_told(alert), 600)
