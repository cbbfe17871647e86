"""What a deployment tells of itself while it runs; the display shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.planning import Change, Op
from engine.state import StoredResource


class Severity(StrEnum):
    """How much a message matters. OUTPUT is what the program prints."""

    OUTPUT = "output"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Step:
    """What is done about one resource. ``parent`` is a URN or ""."""

    urn: str
    op: Op
    parent: str = ""
    changes: tuple[Change, ...] = ()
    note: str = ""
    """What is done, where the operation's own name does not say it: "deleting original"."""
    counts: bool = True
    """Whether it is one of the changes; a part of another's is not."""
    old: StoredResource | None = None
    """What the state has, where that is touched."""
    new: StoredResource | None = None
    """What the program wants; its inputs are checked."""


class Display(Protocol):
    """Where events go. All methods are called in the engine's own thread."""

    def known(self, step: Step) -> None:
        """A resource has been decided upon: in a preview this is all that happens to it."""

    def started(self, step: Step) -> None:
        """An operation begins."""

    def status(self, urn: str, line: str) -> None:
        """What a running operation is waiting for."""

    def finished(self, step: Step, seconds: float) -> None:
        """It succeeded."""

    def failed(self, step: Step, reason: str) -> None:
        """It failed, or the resource could not even be planned."""

    def message(self, severity: Severity, text: str, urn: str = "") -> None:
        """A line from the program or the engine."""
