"""Wait for a condition that a test expects, with a time limit."""

import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
PATIENCE = "PATIENCE"
"""Environment variable with a factor for all time limits, for slow machines."""
_SHORTEST, _LONGEST = 0.01, 1
"""Bounds of the pause between two probes (s). The pause is a tenth of the time since the start."""


def patience() -> float:
    """Return the factor for all time limits."""
    return float(os.environ.get(PATIENCE, "1"))


def eventually(what: str, probe: Callable[[], T], timeout: float = 60) -> T:
    """Return the probe's first true answer.

    Raises AssertionError after `timeout` seconds, with `what` and the last answer.
    """
    for answer in _answers(probe, timeout):
        if answer:
            return answer
    raise AssertionError(f"after {timeout} s, it is not true that {what}; last answer: {answer!r}")


def becomes(what: str, probe: Callable[[], object], wanted: object, timeout: float = 60) -> None:
    """Wait until the probe returns `wanted`.

    Raises AssertionError after `timeout` seconds, with `what` and the last answer.
    """
    for answer in _answers(probe, timeout):
        if answer == wanted:
            return
    raise AssertionError(f"after {timeout} s, {what} is {answer!r}; expected {wanted!r}")


def _answers(probe: Callable[[], T], timeout: float) -> Iterator[T]:
    """Yield the probe's answers until the time limit. Ask the probe at least once."""
    begin = time.monotonic()
    limit = timeout * patience()
    while True:
        yield probe()
        elapsed = time.monotonic() - begin
        if elapsed >= limit:
            return
        time.sleep(min(max(elapsed / 10, _SHORTEST), _LONGEST))
