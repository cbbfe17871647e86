"""Format of slurmrestd's data parser v0.0.42.

- Numbers that may be unset or infinite are objects: `{set, infinite, number}`. Other numbers are
  plain.
- Times are in Unix seconds, with 0 for "never".
- Sets of flags are lists.

`agents.slurm.models` contains the names of the fields.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

VERSION = "v0.0.42"
"""Newest version of the data parser in Slurm 24.11, the release that this project uses."""

Answer = dict[str, Any]


def number(value: Any) -> Any:
    """Return a plain number, or the number in an object. None if it is unset or infinite."""
    if not isinstance(value, Mapping):
        return value
    if value["infinite"] or not value["set"]:
        return None
    return value["number"]


def moment(value: Any) -> Any:
    """Return a time in UTC, or None if the time is unset, infinite, "never" or not a valid date.

    slurmctld stores the start time that a slurmd reports, even if it is not a valid date. One
    invalid time must not make the answer about all nodes unreadable.
    """
    seconds = number(value)
    if not isinstance(seconds, int):
        return seconds
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (ValueError, OSError, OverflowError):
        return None


def positive(value: Any) -> Any:
    """Return a number, or None for 0. For example, array job id 0 means "no array"."""
    return number(value) or None


Number = Annotated[int | None, BeforeValidator(number)]
Id = Annotated[int | None, BeforeValidator(positive)]
Time = Annotated[datetime | None, BeforeValidator(moment)]
Flags = frozenset[str]


def limit(value: int) -> Answer:
    """Return the object for a number in a field that can be infinite."""
    return {"set": True, "infinite": False, "number": value}


def said(answer: Answer) -> tuple[str, tuple[int, ...]]:
    """Return the errors in an answer: their text ("" if there are none) and their numbers.

    Most errors are in `errors`. If a signal for a job failed, the error is in `status`.
    """
    texts: list[str] = []
    numbers: list[int] = []
    for error in answer.get("errors") or ():
        texts.append(": ".join(filter(None, (error.get("error"), error.get("description")))))
        numbers.append(error.get("error_number", 0))
    for status in answer.get("status") or ():
        error = status.get("error", {})
        if error.get("code"):
            texts.append(error.get("string") or error.get("message", ""))
            numbers.append(error["code"])
    return "; ".join(texts), tuple(numbers)
