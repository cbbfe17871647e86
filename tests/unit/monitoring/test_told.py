"""What the tests on a cluster take for an alert that a fault has brought about."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.alerts import Alerts


@dataclass(frozen=True)
class World(Alerts):
    """A Prometheus whose alerts the test brings about."""

    came: list[dict[str, Any]] = field(default_factory=list)

    def now(self) -> float:
        return 1000

    def firing(self, *others: str) -> set[str]:
        return set()

    def told(self) -> list[dict[str, Any]]:
        return self.came

    def tells(self, name: str, began: float) -> None:
        labels, at = {"alertname": name}, datetime.fromtimestamp(began, UTC).isoformat()
        self.came.append({"labels": labels, "status": "firing", "startsAt": at})

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        self.tells(name, began=1010)
        yield


def test_an_alert_that_began_after_the_fault_is_its_own() -> None:
    world = World()
    world.is_told_of(world.fault("NodesDrained"), {"NodesDrained"}, 0)


def test_an_alert_that_was_told_before_is_another_faults() -> None:
    world = World()
    world.tells("NodesDrained", began=990)
    with pytest.raises(AssertionError, match="NodesDrained is told"):
        world.is_told_of(world.fault("NodesDown"), {"NodesDrained"}, 0)
