"""Tests on a cluster attribute an alert to a fault if the alert began after the fault."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.alerts import Alerts


@dataclass(frozen=True)
class World(Alerts):
    """A Prometheus with alerts that the test sets."""

    alerts: list[dict[str, Any]] = field(default_factory=list)

    def now(self) -> float:
        return 1000

    def firing(self, *others: str) -> set[str]:
        return set()

    def received(self) -> list[dict[str, Any]]:
        return self.alerts

    def add_alert(self, name: str, began: float) -> None:
        labels, at = {"alertname": name}, datetime.fromtimestamp(began, UTC).isoformat()
        self.alerts.append({"labels": labels, "status": "firing", "startsAt": at})

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        self.add_alert(name, began=1010)
        yield


def test_alert_that_began_after_the_fault_belongs_to_it() -> None:
    world = World()
    world.check_alerts_of(world.fault("NodesDrained"), {"NodesDrained"}, 0)


def test_alert_from_before_the_fault_does_not_belong_to_it() -> None:
    world = World()
    world.add_alert("NodesDrained", began=990)
    with pytest.raises(AssertionError, match="the receiver gets NodesDrained"):
        world.check_alerts_of(world.fault("NodesDown"), {"NodesDrained"}, 0)
