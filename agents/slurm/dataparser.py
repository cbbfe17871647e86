"""The one place that knows what slurmrestd's data parsers v0.0.40 to v0.0.42 write and read.

What they have in common is written down here once: numbers that may be unset or infinite come as
`{set, infinite, number}`, except where an older parser has a bare number; times are Unix seconds
with 0 for "never"; sets of flags are lists. The field names stand in `agents.slurm.models`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

VERSIONS = ("v0.0.42", "v0.0.41", "v0.0.40")
"""What this client speaks, the newest first; Slurm 24.11 offers all three."""

Answer = dict[str, Any]


def number(value: Any) -> Any:
    """A number, in whichever form; None where it is not set, or has no limit."""
    if not isinstance(value, Mapping):
        return value
    if value["infinite"] or not value["set"]:
        return None
    return value["number"]


def moment(value: Any) -> Any:
    """A time in UTC; None for the ones that have not come and never will."""
    seconds = number(value)
    if isinstance(seconds, int):
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    return seconds


def positive(value: Any) -> Any:
    """A number of which 0 means that there is none, as array job ids are."""
    return number(value) or None


Number = Annotated[int | None, BeforeValidator(number)]
Id = Annotated[int | None, BeforeValidator(positive)]
Time = Annotated[datetime | None, BeforeValidator(moment)]
Flags = frozenset[str]


def limit(value: int) -> Answer:
    """A number as all three parsers read it where it could also be infinite."""
    return {"set": True, "infinite": False, "number": value}


def said(answer: Answer) -> tuple[str, tuple[int, ...]]:
    """What Slurm complains about in an answer, as text and as error numbers; "" for nothing.

    Not every complaint stands under `errors`: that a job could not be signalled stands, since
    v0.0.42, in `status`, and v0.0.40 tells nothing of it at all.
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
