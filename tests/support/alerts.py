"""The rule by which tests attribute alerts to a fault."""

import abc
from collections.abc import Collection
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

from tests.support.waiting import becomes, eventually


class Alerts(abc.ABC):
    """Alerts of a Prometheus, and those that have arrived at a receiver."""

    @abc.abstractmethod
    def now(self) -> float:
        """Seconds since 1970, by the clock that alerts are stamped by."""

    @abc.abstractmethod
    def firing(self, *others: str) -> set[str]:
        """Names of the alerts that fire, or are in one of these states."""

    @abc.abstractmethod
    def told(self) -> list[dict[str, Any]]:
        """The alerts that came to the receiver."""

    def is_told(self, name: str, status: str = "firing", since: float = 0) -> bool:
        """Whether an alert came that began after that moment."""
        return any(
            (one["labels"]["alertname"], one["status"]) == (name, status)
            and datetime.fromisoformat(one["startsAt"]).timestamp() > since
            for one in self.told()
        )

    def is_told_of(
        self, fault: AbstractContextManager[None], alerts: Collection[str], timeout: float
    ) -> None:
        """While the fault lasts all these alerts are told, none of which held before."""
        becomes("what of them there is already", lambda: self._held(alerts), set(), 900)
        begun = self.now()
        with fault:
            for name in alerts:
                eventually(f"{name} is told", partial(self.is_told, name, since=begun), timeout)

    def _held(self, alerts: Collection[str]) -> set[str]:
        return self.firing("pending").intersection(alerts)
