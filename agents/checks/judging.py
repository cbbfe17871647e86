"""Functions that all checks share.

Each check has a function that decides whether the node is fit. This function receives the texts of
the check's readers, and the check's limits. It returns a short description of the fault, or None if
there is no fault. It raises `UnknownError` if it cannot decide.
"""

from collections.abc import Iterable, Iterator

EARLIER = "\f"
"""Separator between a text and an earlier text of the same reader. The line after the separator is
the age of the earlier text in seconds."""
_MOST = 4
"""Maximum number of faults that a message lists."""


class UnknownError(Exception):
    """The check cannot decide whether the node is fit."""


def listed(things: Iterable[object], remedy: str = "") -> str | None:
    """Return the first faults as one text with the remedy, or None if there is no fault."""
    found = [str(thing) for thing in things]
    more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    text = ", ".join(found[:_MOST] + more)
    return f"{text}; {remedy}" if text and remedy else text or None


def rows(text: str, fields: int) -> Iterator[list[str]]:
    """Split each line into at most `fields` columns. The last column contains all further words."""
    for line in text.splitlines():
        if line.strip():
            yield line.split(None, fields - 1)


def earlier(text: str) -> tuple[str, str, float]:
    """Return the current text, the earlier text, and the age of the earlier text in seconds.

    Raises `UnknownError` if there is no earlier text.
    """
    now, marked, before = text.partition(EARLIER)
    if not marked:
        raise UnknownError("this check has no earlier reading to compare with; run the check again")
    age, _, before = before.partition("\n")
    return now, before, float(age)


def jobs(processes: str) -> set[str]:
    """Return the ids of the jobs that run on this node.

    The process slurmstepd of each job step has the step's id in its command line, such as
    `slurmstepd: [42.batch]`. A slurmstepd that has just started has no id yet, so the result then
    contains "". An earlier text in `processes` is ignored.
    """
    now, _, _ = processes.partition(EARLIER)
    steps = (row for row in rows(now, 8) if (row[2], row[6]) == ("0", "slurmstepd"))
    return {"".join(row[7:]).partition("[")[2].partition(".")[0] for row in steps}
