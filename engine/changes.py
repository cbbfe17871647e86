"""Find what a plan changes in a resource's inputs, for display."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from engine.excerpts import (
    IDENTITIES,
    are_words,
    both_shortened,
    changed_lines,
    is_file,
    joined,
)
from engine.paths import MISSING, Missing, contains, look_up, parse_path
from engine.planning import Plan
from engine.values import (
    Path,
    Properties,
    Secret,
    Value,
    as_secret,
    changed_paths,
    format_path,
    plain,
)


@dataclass(frozen=True)
class Change:
    """A property's change for display. Values are JSON without secrets, or None if absent."""

    path: str
    """Path in the new inputs; if only the old inputs have the value, path in the old inputs."""
    old: str | None
    new: str | None
    replaces: bool = False
    lines: tuple[str, ...] = ()
    """Removed and added lines of a file, or items of a list, with the prefix `- ` or `+ `."""
    place: str = ""
    """Path for display, in which an item of a list has its name instead of its position."""


@dataclass(frozen=True)
class _Difference:
    path: Path
    place: str
    old: Value | Missing
    new: Value | Missing


def changes(
    old: Properties, new: Properties, planned: Plan, show: Callable[[Value], str]
) -> tuple[Change, ...]:
    """Return what a plan changes, with one entry for each place that differs.

    ``show`` must return complete values. This function shortens long values by leaving out text
    that both values have in common.
    """
    result: dict[str, Change] = {}
    forcing = [parse_path(key) for key in planned.replaces]
    for text in dict.fromkeys((*planned.changed, *planned.replaces)):
        path = _up_to_list(old, new, parse_path(text))
        replaces = any(contains(key, path) or contains(path, key) for key in forcing)
        for found in _differences(old, new, path):
            change = Change(
                format_path(found.path),
                *_shown(found, show),
                replaces,
                changed_lines(found.old, found.new),
                found.place,
            )
            result.setdefault(change.place, change)
    return tuple(result.values())


def _shown(found: _Difference, show: Callable[[Value], str]) -> tuple[str | None, str | None]:
    old, new = (
        None if isinstance(value, Missing) else show(value) for value in (found.old, found.new)
    )
    return both_shortened(old, new)


# ---------------------------------------------------------------------------------------------
# Differences


def _differences(old: Properties, new: Properties, path: Path) -> list[_Difference]:
    """Return the differences at or below ``path``.

    Omit differences between two empty values, unless all differences are of this kind.
    """
    whole = _Difference(path, _place(old, new, path), look_up(old, path), look_up(new, path))
    found = [*_compare(whole)]
    telling = [one for one in found if not (_empty(one.old) and _empty(one.new))]
    return telling or found or [whole]


def _empty(value: Value | Missing) -> bool:
    return isinstance(value, Missing) or value in (None, {}, [], "")


def _compare(whole: _Difference) -> Iterator[_Difference]:
    """Yield the differences between two values, as deep as possible."""
    old, new = whole.old, whole.new
    if isinstance(old, Secret) or isinstance(new, Secret):
        for one in _compare(replace(whole, old=_opened(old), new=_opened(new))):
            yield replace(one, old=_closed(one.old), new=_closed(one.new))
    elif isinstance(old, list) and isinstance(new, list):
        yield from _compare_lists(whole, old, new)
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _compare(_at_key(whole, key))
    elif isinstance(old, Missing) or isinstance(new, Missing):
        only = new if isinstance(old, Missing) else old
        if isinstance(only, dict) and any(map(is_file, only.values())):
            # Show each file of an object that is added or removed.
            yield from (_at_key(whole, key) for key in only)
        else:
            yield whole
    elif changed_paths(old, new):
        yield whole


def _compare_lists(whole: _Difference, old: list[Value], new: list[Value]) -> Iterator[_Difference]:
    """Compare each item with the item of the same name. Compare by position if there are no names.

    Yield a list of words as one value: if its items were compared by position, one inserted word
    would change all items after it.
    """
    if are_words(old, new):
        if changed_paths(old, new):
            yield whole
        return
    named = _names(old, new)
    if named is None:
        for index in range(max(len(old), len(new))):
            at = _Difference((*whole.path, index), f"{whole.place}[{index}]", MISSING, MISSING)
            yield from _compare(replace(at, old=_item(old, index), new=_item(new, index)))
        return
    before, after = named
    if [name for name in before if name in after] != [name for name in after if name in before]:
        yield replace(whole, old=[*before], new=[*after])
    places = {name: index for names in named for index, name in enumerate(names)}
    for name in sorted(places, key=lambda name: places[name]):
        at = _Difference((*whole.path, places[name]), f"{whole.place}[{name}]", MISSING, MISSING)
        sides = (
            _item(items, names.index(name)) if name in names else MISSING
            for items, names in ((old, before), (new, after))
        )
        yield from _compare(replace(at, old=next(sides), new=next(sides)))


def _names(old: Value | Missing, new: Value | Missing) -> tuple[list[str], list[str]] | None:
    """Return the names of the items of two lists, or None if names do not identify the items."""
    if not (isinstance(old, list) and isinstance(new, list)):
        return None
    for key in IDENTITIES:
        sides = [
            [item.get(key) if isinstance(item, dict) else None for item in items]
            for items in (old, new)
        ]
        before, after = ([name for name in side if isinstance(name, str)] for side in sides)
        if all(
            len(names) == len(items) == len(set(names))
            for names, items in ((before, old), (after, new))
        ):
            return before, after
    return None


def _up_to_list(old: Properties, new: Properties, path: Path) -> Path:
    """Return the path up to the first list that must be shown as a whole.

    Such a list is a list of words, or its items have other positions than before.
    """
    for depth, step in enumerate(path):
        if isinstance(step, int):
            before, after = look_up(old, path[:depth]), look_up(new, path[:depth])
            named = _names(before, after)
            if named and any(a != b for a, b in zip(*named, strict=False)):
                return path[:depth]
            if are_words(before, after):
                return path[:depth]
    return path


def _place(old: Properties, new: Properties, path: Path) -> str:
    """Return a path in which items of lists have their names instead of their positions.

    In each list on this path, the item must have the same position in old and new inputs.
    """
    place = ""
    for depth, step in enumerate(path):
        if isinstance(step, str):
            place = joined(place, step)
            continue
        named = _names(look_up(old, path[:depth]), look_up(new, path[:depth]))
        longer = max(named, key=len) if named else []
        place += f"[{longer[step] if step < len(longer) else step}]"
    return place


def _at_key(whole: _Difference, key: str) -> _Difference:
    old, new = (
        side.get(key, MISSING) if isinstance(side, dict) else MISSING
        for side in (whole.old, whole.new)
    )
    return _Difference((*whole.path, key), joined(whole.place, key), old, new)


def _item(items: list[Value], index: int) -> Value | Missing:
    return items[index] if index < len(items) else MISSING


def _opened(value: Value | Missing) -> Value | Missing:
    return value if isinstance(value, Missing) else plain(value)


def _closed(value: Value | Missing) -> Value | Missing:
    return value if isinstance(value, Missing) else as_secret(value)
