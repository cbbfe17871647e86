"""Show the parts of two values that differ."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from engine.paths import Missing
from engine.values import UNKNOWN_STRING, Value, format_path

IDENTITIES: Final = ("name", "mountPath", "key", "ip")
"""Keys that identify an object in the lists of Kubernetes manifests."""
WIDTH: Final = 60
"""Maximum length of a value on one line."""
_CONTEXT: Final = 20
"""Maximum length of the equal text to show before and after the part that differs."""


# --- Texts on one line ---------------------------------------------------------------------------


def _shortened(text: str) -> str:
    """Return a text with at most `WIDTH` characters."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def both_shortened(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Shorten two texts to at most `WIDTH` characters, so that they still differ.

    Cut the equal start and end of the texts first.
    """
    if old is None or new is None or old == new or max(len(old), len(new)) <= WIDTH:
        return old and _shortened(old), new and _shortened(new)
    same = _common(old, new)
    start = _start(old[:same])
    before, after = old[same:], new[same:]
    same_end = _common(before[::-1], after[::-1])
    end = same_end - _kept(old[len(old) - same_end :])
    return _excerpt(old, start, end), _excerpt(new, start, end)


def _common(old: str, new: str) -> int:
    """Return the length of the start that both texts have in common."""
    pairs = enumerate(zip(old, new, strict=False))
    shorter = min(len(old), len(new))
    return next((index for index, (one, other) in pairs if one != other), shorter)


def _start(common: str) -> int:
    """Return the position from which to show a common start: where its last word begins."""
    word = max(map(common.rfind, "/, "))
    return max(word, len(common) - _CONTEXT, 0)


def _kept(common: str) -> int:
    """Return how many characters of a common end to show: those of its first word."""
    found = re.search("[/, ]", common)
    return min(found.end() if found else len(common), _CONTEXT)


def _excerpt(text: str, start: int, end: int) -> str:
    quote = '"' if text.startswith('"') else ""
    head = f"{quote}…" if start > len(quote) else text[:start]
    tail = f"…{quote}" if end > len(quote) else text[len(text) - end :]
    return _shortened(f"{head}{text[start : len(text) - end]}{tail}")


# --- Lines of files, items of lists --------------------------------------------------------------


def changed_lines(old: Value | Missing, new: Value | Missing) -> tuple[str, ...]:
    """Return the lines that only one of two files has. One of the files may be missing.

    For two lists, or two long texts of several words, return the removed and added items. For other
    values, return nothing.
    """
    sides = _files(old, new) or _items(old, new)
    if not sides:
        return ()
    diff = difflib.unified_diff(*sides, lineterm="", n=0)
    return tuple(f"{line[0]} {line[1:]}" for line in list(diff)[2:] if line[0] in "-+")


def is_file(value: Value | Missing) -> bool:
    """Return whether a value is a text of several lines, or an object or list in JSON."""
    return isinstance(value, str) and ("\n" in value or _document(value) is not None)


def are_words(*values: Value | Missing) -> bool:
    """Return whether the values are lists that contain only short texts, numbers and Booleans."""
    return all(isinstance(value, list) and all(map(_is_word, value)) for value in values)


def _is_word(value: Value) -> bool:
    if isinstance(value, str):
        return len(value) <= WIDTH and "\n" not in value and value != UNKNOWN_STRING
    return isinstance(value, bool | int | float)


def _files(old: Value | Missing, new: Value | Missing) -> tuple[list[str], list[str]] | None:
    are_texts = isinstance(old, str | Missing) and isinstance(new, str | Missing)
    if not are_texts or not (is_file(old) or is_file(new)):
        return None
    before, after = (_lines(one) if isinstance(one, str) else [] for one in (old, new))
    return before, after


def _items(old: Value | Missing, new: Value | Missing) -> tuple[list[str], list[str]] | None:
    if isinstance(old, list) and isinstance(new, list) and are_words(old, new):
        return [*map(_word, old)], [*map(_word, new)]
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) + 2 > WIDTH:
        # With quotes (+ 2), one of the texts is too long for one line.
        before, after = (re.split("[ ,]+", one) for one in (old, new))
        return (before, after) if set(before) & set(after) else None
    return None


def _word(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lines(text: str) -> list[str]:
    document = _document(text)
    return text.splitlines() if document is None else document


def _document(text: str) -> list[str] | None:
    """Return a line for each value of an object or list in JSON; None for other texts."""
    if text[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            return [*_leaves(json.loads(text), "")]
    return None


def _leaves(value: Any, place: str) -> Iterator[str]:
    """Yield each value with its path, so that a changed line shows its place in the document."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _leaves(value[key], joined(place, key))
    elif isinstance(value, list) and value:
        for item in value:
            yield from _leaves(item, f"{place}[{_identity(item)}]")
    else:
        text = json.dumps(value, ensure_ascii=False)
        yield f"{place}: {text}" if place else text


def _identity(item: Any) -> str:
    """Return the name of an item, or "".

    Do not use the item's position, because an inserted item would change it.
    """
    names = (item.get(key) for key in IDENTITIES) if isinstance(item, dict) else ()
    return next((name for name in names if isinstance(name, str)), "")


def joined(place: str, key: str) -> str:
    """Return the path of a key below a place."""
    text = format_path((key,))
    return f"{place}.{text}" if place and not text.startswith("[") else f"{place}{text}"
