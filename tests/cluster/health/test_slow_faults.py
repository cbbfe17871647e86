"""Faults that fire alerts only after some minutes; `make soak` runs them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.health import faults
from tests.cluster.health.node import Node
from tests.cluster.health.watching import impatient, watched
from tests.support.cluster import Cluster
from tests.support.prometheus import Watch

pytestmark = pytest.mark.soak
PACE = 10
"""Factor by which the times in the alerts' files are shortened."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@pytest.fixture(scope="module")
def watch(cluster: Cluster) -> Iterator[Watch]:
    def with_gpus(values: dict[str, Any]) -> None:
        values["monitoring"]["dcgm_namespace"] = faults.GPUS_NAMESPACE

    with faults.gpus(cluster):
        try:
            with cluster.edited(with_gpus):
                cluster.deploy("up")
                with watched(cluster, lambda text: hastened(impatient(text))) as prometheus:
                    yield prometheus
        finally:
            cluster.deploy("up")


def hastened(text: str) -> str:
    """Return an alerts' file with ranges and limits divided by PACE.

    A range is at least 30 s. In a limit, a day becomes ten seconds.
    """

    def range_(found: re.Match[str]) -> str:
        return f"{found[1]}{max(int(found[2]) * _UNITS[found[3]] // PACE, 30)}s"

    text = re.sub(r"(\[|\boffset )(\d+)([smhd])\b", range_, text)
    text = re.sub(r"(_seconds\S*) > (\d{3,})\b", lambda m: f"{m[1]} > {int(m[2]) // PACE}", text)
    return re.sub(r"> (\d+) \* 86400\b", r"> \1 * 10", text)


@pytest.mark.parametrize("fault", faults.LASTING)
def test_lasting_fault_fires_its_alerts(watch: Watch, node: Node, fault: str) -> None:
    broken, alerts = faults.LASTING[fault]
    watch.check_alerts_of(broken(watch.cluster), alerts, 600)
