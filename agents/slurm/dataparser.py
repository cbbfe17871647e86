"""Format of slurmrestd's data parser v0.0.42, which only this module knows.

- Numbers that may be unset or infinite are objects: `{set, infinite, number}`. Others are bare.
- Times are Unix seconds, with 0 for "never".
- Sets of flags are lists.

The names of the fields are in `agents.slurm.models`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

VERSION = "v0.0.42"
"""The newest version of Slurm 24.11, which is the release of the project's slurmrestd."""

Answer = dict[str, Any]


def number(value: Any) -> Any:
    """Return a number of either form; None if it is unset or infinite."""
    if not isinstance(value, Mapping):
        return value
    if value["infinite"] or not value["set"]:
        return None
    return value["number"]


def moment(value: Any) -> Any:
    """Return a time in UTC; None if it is unset, infinite or "never"."""
    seconds = number(value)
    if isinstance(seconds, int):
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    return seconds


def positive(value: Any) -> Any:
    """Return a number; None for 0, which means that there is none, as for array job ids."""
    return number(value) or None


Number = Annotated[int | None, BeforeValidator(number)]
Id = Annotated[int | None, BeforeValidator(positive)]
Time = Annotated[datetime | None, BeforeValidator(moment)]
Flags = frozenset[str]


def limit(value: int) -> Answer:
    """Return a number for a field that could be infinite, as an object."""
    return {"set": True, "infinite": False, "number": value}


def said(answer: Answer) -> tuple[str, tuple[int, ...]]:
    """Return the errors in an answer, as text and as error numbers; "" if there are none.

    Not every error is in `errors`. If a job could not be signalled, the error is in `status`.
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
