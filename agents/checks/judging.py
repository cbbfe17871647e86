"""What all checks have in common.

A judge gets texts that readers have fetched and its limits, and returns what is wrong in a few
words, or None where nothing is. It raises `UnknownError` where that cannot be told.
"""

from collections.abc import Iterable, Iterator

EARLIER = "\f"
"""Stands between a text and an earlier one of the same reader, which begins with its age in
seconds, in a line of its own."""
_MOST = 4


class UnknownError(Exception):
    """A check cannot be carried out: the node is neither good nor bad by it."""


def listed(things: Iterable[object]) -> str | None:
    """Things in a few words; None where there are none."""
    found = [str(thing) for thing in things]
    more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return ", ".join(found[:_MOST] + more) or None


def rows(text: str, fields: int) -> Iterator[list[str]]:
    """Words of each line; the last of so many fields has the rest of its line."""
    for line in text.splitlines():
        if line.strip():
            yield line.split(None, fields - 1)


def earlier(text: str) -> tuple[str, str, float]:
    """A text, the one before it, and that one's age in seconds. Raises `UnknownError`."""
    now, marked, before = text.partition(EARLIER)
    if not marked:
        raise UnknownError("there is nothing yet to compare with")
    age, _, before = before.partition("\n")
    return now, before, float(age)


def jobs(processes: str) -> set[str]:
    """Ids of the jobs of which there is a slurmstepd, which calls itself `slurmstepd: [42.batch]`.

    One that has just begun has no id yet. An earlier text behind this one does not count.
    """
    now, _, _ = processes.partition(EARLIER)
    steps = (row for row in rows(now, 8) if (row[2], row[6]) == ("0", "slurmstepd"))
    return {"".join(row[7:]).partition("[")[2].partition(".")[0] for row in steps}
