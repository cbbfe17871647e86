"""Events of a running deployment, for the display."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.changes import Change
from engine.planning import Op
from engine.state import StoredResource


class Severity(StrEnum):
    """Severity of a message. OUTPUT is for lines that the program prints."""

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
    """The stored resource that the step updates, replaces or deletes, if any."""
    new: StoredResource | None = None
    """The resource that the program wants, with checked inputs."""


class Display(Protocol):
    """Receiver of events. The engine calls all methods in its own thread."""

    def known(self, step: Step) -> None:
        """Receive the planned operation on a resource. A preview sends no other event about it."""

    def started(self, step: Step) -> None:
        """Receive the start of an operation."""

    def status(self, urn: str, line: str) -> None:
        """Receive what a running operation waits for; an empty ``line`` if it no longer waits."""

    def finished(self, step: Step, seconds: float) -> None:
        """Receive the success of an operation, with its duration."""

    def failed(self, step: Step, reason: str) -> None:
        """Receive the failure of an operation, or of the planning for its resource."""

    def message(self, severity: Severity, text: str, urn: str = "") -> None:
        """Receive a line from the program or the engine; ``urn`` is the resource, if any."""
