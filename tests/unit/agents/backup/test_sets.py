"""Sets of backups: which are complete, which one is restored, and which snapshots are removed."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.backup.restic import BackupError, Snapshot
from agents.backup.sets import choose, sets, surplus, table, tags

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
PARTS = ("state", "accounting", "jail", "complete")


def made(identity: str, *parts: str, age: timedelta = timedelta(), run: str = "") -> list[Snapshot]:
    """Return the snapshots of a set; its parts are one second apart."""
    return [
        Snapshot(
            f"{run}{identity}-{part}",
            (NOW - age + timedelta(seconds=second)).isoformat().replace("+00:00", "Z"),
            frozenset(tags(identity, part)),
        )
        for second, part in enumerate(parts)
    ]


def test_set_is_complete_once_it_has_its_mark() -> None:
    found = sets(
        [*made("a", *PARTS), *made("b", "state", "accounting", "jail", age=timedelta(hours=1))]
    )

    assert [(one.id, one.is_complete) for one in found] == [("b", False), ("a", True)]


def test_snapshots_without_a_set_are_ignored() -> None:
    dump = Snapshot("1f2e3d4c", NOW.isoformat(), frozenset())
    assert sets([dump, *made("a", *PARTS)]) == sets(made("a", *PARTS))


def test_repeated_part_counts_once_with_its_newest_snapshot() -> None:
    first = made("a", "state", age=timedelta(hours=1), run="first-")
    second = made("a", *PARTS)
    (found,) = sets([*second, *first])

    assert found.parts["state"] == second[0]
    assert found.others == (first[0],)


def test_parts_of_a_failed_run_after_the_mark_do_not_count() -> None:
    first = made("a", *PARTS, age=timedelta(hours=1), run="first-")
    second = made("a", "state", "jail")
    (found,) = sets([*second, *first])

    assert found.is_complete
    assert [found.parts[part] for part in PARTS] == first
    assert found.others == tuple(second)


def test_latest_is_the_newest_complete_set() -> None:
    found = sets(
        [
            *made("old", *PARTS, age=timedelta(days=2)),
            *made("new", *PARTS, age=timedelta(days=1)),
            *made("half", "state", "accounting"),
        ]
    )

    assert choose(found, "latest").id == "new"
    assert choose(found, "old").id == "old"


@pytest.mark.parametrize("wanted", ["half", "nightly"])
def test_error_about_a_missing_set_names_the_newest_sets(wanted: str) -> None:
    found = sets([*made("old", *PARTS, age=timedelta(days=2)), *made("half", "state")])

    with pytest.raises(BackupError, match=f"no complete set '{wanted}'.*complete sets: old"):
        choose(found, wanted)


def test_parts_are_removed_together_with_their_mark() -> None:
    kept = made("new", *PARTS, age=timedelta(hours=1))
    before = sets([*made("old", *PARTS, age=timedelta(hours=2)), *kept])
    after = sets([*made("old", *PARTS[:-1], age=timedelta(hours=2)), *kept])

    assert surplus(before, after, NOW) == {"old-state", "old-accounting", "old-jail"}


@pytest.mark.parametrize(("hours", "removed"), [(1, set()), (25, {"half-state"})])
def test_incomplete_set_is_removed_only_after_a_day(hours: int, removed: set[str]) -> None:
    found = sets(made("half", "state", age=timedelta(hours=hours)))

    assert surplus(found, found, NOW) == removed


def test_table_lists_complete_sets_with_time_and_parts() -> None:
    found = sets([*made("backup-29411237", *PARTS), *made("half", "state")])

    assert table(found) == "backup-29411237  2026-12-01T12:00Z  accounting, jail, state"
