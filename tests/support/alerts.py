"""Check that Prometheus raises the expected alerts of a fault, and that a receiver gets them."""

import abc
from collections.abc import Collection
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

from tests.support.waiting import becomes, eventually


class Alerts(abc.ABC):
    """Alerts of a Prometheus, and the alerts that a receiver got."""

    @abc.abstractmethod
    def now(self) -> float:
        """Return the Unix time of the clock that sets the alerts' timestamps."""

    @abc.abstractmethod
    def firing(self, *others: str) -> set[str]:
        """Return the names of alerts that fire or are in one of the states `others`."""

    @abc.abstractmethod
    def received(self) -> list[dict[str, Any]]:
        """Return the alerts that the receiver got."""

    def has_received(self, name: str, status: str = "firing", since: float = 0) -> bool:
        """Return whether the receiver got an alert that started after `since` (Unix time)."""
        return any(
            (one["labels"]["alertname"], one["status"]) == (name, status)
            and datetime.fromisoformat(one["startsAt"]).timestamp() > since
            for one in self.received()
        )

    def check_alerts_of(
        self, fault: AbstractContextManager[None], alerts: Collection[str], timeout: float
    ) -> None:
        """Check that a fault raises all these alerts, none of which was active before the fault."""
        becomes(
            "the set of active alerts before the fault", lambda: self._active(alerts), set(), 900
        )
        begun = self.now()
        with fault:
            for name in alerts:
                probe = partial(self.has_received, name, since=begun)
                eventually(f"the receiver gets {name}", probe, timeout)

    def _active(self, alerts: Collection[str]) -> set[str]:
        return self.firing("pending").intersection(alerts)
