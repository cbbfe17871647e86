"""Parts that all checks share.

A judge receives its limits and the texts that readers have fetched. It returns in a few words what
is wrong, or None if nothing is. It raises `UnknownError` if it cannot decide.
"""

from collections.abc import Iterable, Iterator

EARLIER = "\f"
"""Separator between a text and an earlier one of the same reader. The earlier one begins with a
line that contains its age in seconds."""
_MOST = 4


class UnknownError(Exception):
    """A check cannot be carried out, so it finds the node neither good nor bad."""


def listed(things: Iterable[object]) -> str | None:
    """Return things in a few words, or None if there are none."""
    found = [str(thing) for thing in things]
    more = [f"and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return ", ".join(found[:_MOST] + more) or None


def rows(text: str, fields: int) -> Iterator[list[str]]:
    """Yield the words of each line, at most `fields`. The last one holds the rest of the line."""
    for line in text.splitlines():
        if line.strip():
            yield line.split(None, fields - 1)


def earlier(text: str) -> tuple[str, str, float]:
    """Return a text, the earlier one, and its age in seconds. Raises `UnknownError` without one."""
    now, marked, before = text.partition(EARLIER)
    if not marked:
        raise UnknownError("there is no earlier reading to compare with")
    age, _, before = before.partition("\n")
    return now, before, float(age)


def jobs(processes: str) -> set[str]:
    """Return the ids of the jobs that have a slurmstepd: it calls itself `slurmstepd: [42.batch]`.

    A slurmstepd that has just begun has no id yet. An earlier text after this one is ignored.
    """
    now, _, _ = processes.partition(EARLIER)
    steps = (row for row in rows(now, 8) if (row[2], row[6]) == ("0", "slurmstepd"))
    return {"".join(row[7:]).partition("[")[2].partition(".")[0] for row in steps}
