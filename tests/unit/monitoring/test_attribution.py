"""Tests on a cluster attribute an alert to a fault if the alert began after the fault."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.alerts import Alerts


@dataclass(frozen=True)
class FakePrometheus(Alerts):
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


def test_alert_after_a_fault_is_attributed_to_the_fault() -> None:
    prometheus = FakePrometheus()
    prometheus.check_alerts_of(prometheus.fault("NodesDrained"), {"NodesDrained"}, 0)


def test_alert_before_a_fault_is_not_attributed_to_the_fault() -> None:
    prometheus = FakePrometheus()
    prometheus.add_alert("NodesDrained", began=990)
    with pytest.raises(AssertionError, match="the receiver gets NodesDrained"):
        prometheus.check_alerts_of(prometheus.fault("NodesDown"), {"NodesDrained"}, 0)
