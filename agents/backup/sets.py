"""Sets of backups: the snapshots that one run made of the queue, the accounting and the jail.

All snapshots of a set have its id as a tag. The last snapshot is a mark: it says that all parts
before it are complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from agents.backup.restic import RUN, BackupError, Restic, Snapshot

STATE: Final = "state"
"""Part with slurmctld's state: the queue."""
ACCOUNTING: Final = "accounting"
JAIL: Final = "jail"
MARK: Final = "complete"
"""Part that completes a set."""
LATEST: Final = "latest"
_STALE: Final = timedelta(days=1)
"""Age at which an incomplete set counts as left over by a failed run."""


def tags(identity: str, part: str) -> tuple[str, str]:
    return f"set={identity}", f"part={part}"


@dataclass(frozen=True)
class Set:
    """Snapshots of one run by part."""

    id: str
    parts: Mapping[str, Snapshot]
    """If a part has several snapshots, because a run was repeated, only the newest one that is not
    newer than the set's mark counts."""
    others: tuple[Snapshot, ...] = ()
    """Further snapshots with the set's id."""

    @property
    def is_complete(self) -> bool:
        return MARK in self.parts

    @property
    def time(self) -> str:
        """Moment of the newest snapshot, in UTC."""
        return max(one.time for one in self.parts.values())


def sets(snapshots: Iterable[Snapshot]) -> list[Set]:
    """Return the sets of some snapshots, oldest first."""
    found: dict[str, list[tuple[str, Snapshot]]] = {}
    for snapshot in sorted(snapshots, key=lambda one: one.time):
        tagged = dict(tag.partition("=")[::2] for tag in snapshot.tags)
        if {"set", "part"} <= tagged.keys():
            found.setdefault(tagged["set"], []).append((tagged["part"], snapshot))
    return sorted((_set(name, made) for name, made in found.items()), key=lambda one: one.time)


def _set(name: str, made: Sequence[tuple[str, Snapshot]]) -> Set:
    """Return the set of these parts, oldest first."""
    marks = [index for index, (part, _) in enumerate(made) if part == MARK]
    counted = dict(made[: marks[-1] + 1] if marks else made)
    kept = {one.id for one in counted.values()}
    return Set(name, counted, tuple(one for _, one in made if one.id not in kept))


def choose(found: Sequence[Set], wanted: str) -> Set:
    """Return a complete set by its id, or the newest one for `latest`. Raises BackupError."""
    complete = [one for one in found if one.is_complete]
    for one in reversed(complete):
        if wanted in (LATEST, one.id):
            return one
    known = ", ".join(one.id for one in complete[-5:]) or "none"
    raise BackupError(
        f"the store has no complete set '{wanted}': correct 'backup.restore'; the newest complete "
        f"sets: {known}"
    )


def surplus(before: Sequence[Set], after: Sequence[Set], now: datetime) -> set[str]:
    """Return the ids of snapshots to remove after old marks were removed.

    The parts of a set go together with its mark. A set that never was complete goes after a
    day; until then, its run may still be at work.
    """
    complete = {one.id for one in before if one.is_complete}
    return {
        part.id
        for one in after
        if not one.is_complete
        and (one.id in complete or now - datetime.fromisoformat(one.time) > _STALE)
        for part in (*one.parts.values(), *one.others)
    }


def complete(restic: Restic, identity: str) -> None:
    """Mark a set as complete. Raises BackupError."""
    (restic.root / RUN / MARK).write_text(f"{identity}\n")
    done = restic.run(
        *("backup", "--host", restic.cluster, "--tag", ",".join(tags(identity, MARK))),
        f"/{RUN}/{MARK}",
    )
    if done.code != 0:
        raise BackupError(f"the set '{identity}' cannot be marked as complete: {done.reason}")


def thin(restic: Restic, now: datetime, *options: str) -> list[Set]:
    """Remove the sets that the settings do not keep, and their data. Return the other sets.

    Raises BackupError.

    `options` are those of restic-prune(1).
    """
    before = sets(restic.snapshots())
    chosen = ("--host", restic.cluster, "--group-by", "host", "--tag", f"part={MARK}")
    done = restic.run("forget", *chosen, *restic.keep)
    if done.code != 0:
        raise BackupError(f"old sets cannot be removed: {done.reason}")
    after = sets(restic.snapshots())
    restic.forget(surplus(before, after, now))
    done = restic.run("prune", *options)
    if done.code != 0:
        raise BackupError(f"the data of old sets cannot be removed: {done.reason}")
    return after


def table(found: Sequence[Set]) -> str:
    """Return a line for each complete set, for an operator."""
    lines = [
        f"{one.id}  {one.time[:16]}Z  {', '.join(sorted(one.parts.keys() - {MARK}))}"
        for one in found
        if one.is_complete
    ]
    return "\n".join(lines)
