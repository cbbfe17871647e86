"""What a plan changes in a resource's inputs, for display."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Callable
from dataclasses import dataclass

from engine.paths import Missing, contains, look_up, parse_path
from engine.planning import Plan
from engine.values import Path, Properties, Value, changed_paths, format_path, plain


@dataclass(frozen=True)
class Change:
    """A property's change for display. Values are JSON without secrets, None if absent."""

    path: str
    old: str | None
    new: str | None
    replaces: bool = False
    lines: tuple[str, ...] = ()
    """Removed and added lines of a text, such as a file, with the prefix `- ` or `+ `."""


def changes(
    old: Properties, new: Properties, planned: Plan, show: Callable[[Value], str]
) -> tuple[Change, ...]:
    """Return what a plan changes, with one entry for each path that differs."""
    result: dict[str, Change] = {}
    forcing = [parse_path(key) for key in planned.replaces]
    for text in dict.fromkeys((*planned.changed, *planned.replaces)):
        path = parse_path(text)
        replaces = any(contains(key, path) or contains(path, key) for key in forcing)
        for at in _differences(old, new, path):
            before, after = look_up(old, at), look_up(new, at)
            change = Change(
                format_path(at),
                _shown(before, show),
                _shown(after, show),
                replaces,
                _line_diff(before, after),
            )
            result.setdefault(change.path, change)
    return tuple(result.values())


def _line_diff(before: Value | Missing, after: Value | Missing) -> tuple[str, ...]:
    """Return the lines that differ between two files, one of which may be missing.

    Return no lines for other values, and for texts of one line.
    """
    are_texts = isinstance(before, str | Missing) and isinstance(after, str | Missing)
    if not are_texts or not (_is_file(before) or _is_file(after)):
        return ()
    old, new = (_lines(one) if isinstance(one, str) else [] for one in (before, after))
    diff = difflib.unified_diff(old, new, lineterm="", n=0)
    return tuple(f"{line[0]} {line[1:]}" for line in list(diff)[2:] if line[0] in "-+")


def _is_file(value: Value | Missing) -> bool:
    return isinstance(value, str) and ("\n" in value or len(_lines(value)) > 1)


def _lines(text: str) -> list[str]:
    """Return a text's lines. Data in JSON gets a line for each value."""
    if text[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return json.dumps(json.loads(text), indent=1, sort_keys=True).split("\n")
    return text.splitlines()


def _differences(old: Properties, new: Properties, path: Path) -> list[Path]:
    """Return the differing paths below ``path``.

    Omit paths where both values are empty, unless there are no others.
    """
    before, after = look_up(old, path), look_up(new, path)
    if isinstance(before, Missing) or isinstance(after, Missing):
        # Show the files of an added or removed object one by one.
        whole = after if isinstance(before, Missing) else before
        if isinstance(whole, dict) and any(map(_is_file, whole.values())):
            return [(*path, key) for key in whole]
        return [path]
    deeper = [(*path, *rest) for rest in changed_paths(plain(before), plain(after))]
    telling = [at for at in deeper if not (_empty(look_up(old, at)) and _empty(look_up(new, at)))]
    return telling or deeper or [path]


def _empty(value: Value | Missing) -> bool:
    return isinstance(value, Missing) or value in (None, {}, [], "")


def _shown(value: Value | Missing, show: Callable[[Value], str]) -> str | None:
    return None if isinstance(value, Missing) else show(value)
