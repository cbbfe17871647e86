"""Events of a running deployment, for the display."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.changes import Change
from engine.planning import Op
from engine.state import StoredResource


class Severity(StrEnum):
    """Severity of a message. OUTPUT is what the program prints."""

    OUTPUT = "output"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Step:
    """One operation on a resource. ``parent`` is a URN or ""."""

    urn: str
    op: Op
    parent: str = ""
    changes: tuple[Change, ...] = ()
    note: str = ""
    """A description that replaces the operation's name, such as "deleting original"."""
    counts: bool = True
    """Whether the summary includes this step. False if the step is part of another step."""
    old: StoredResource | None = None
    """The resource in the state, if the step affects it."""
    new: StoredResource | None = None
    """The resource that the program wants, with checked inputs."""


class Display(Protocol):
    """Receiver of events. The engine calls all methods in its own thread."""

    def known(self, step: Step) -> None:
        """In a preview: the planned operation on a resource, which gets no other event."""

    def started(self, step: Step) -> None:
        """An operation starts."""

    def status(self, urn: str, line: str) -> None:
        """A running operation waits; ``line`` gives the reason."""

    def finished(self, step: Step, seconds: float) -> None:
        """An operation has succeeded."""

    def failed(self, step: Step, reason: str) -> None:
        """An operation has failed, or its resource could not be planned."""

    def message(self, severity: Severity, text: str, urn: str = "") -> None:
        """A line from the program or the engine."""
