"""Property paths in the syntax of ``ignore_changes`` and ``replace_on_changes``.

Examples: ``spec.ports[0].name``, ``data["a.b"]``. ``*`` matches any one key or index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

from engine.errors import EngineError
from engine.values import Path, Properties, Secret, Value, as_secret

_STEP: Final = re.compile(
    r"""\.?(?P<name>[^.\[\]"]+)|\[(?P<index>\d+|\*)\]|\["(?P<quoted>(?:[^"\\]|\\.)*)"\]"""
)
_ANY: Final = "*"


class Missing(Enum):
    """Marker for a path without a value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def parse_path(text: str) -> Path:
    """Parse a property path. Raises EngineError if the path is invalid."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise EngineError(
                f"property path {text!r}: invalid at column {position + 1}; correct this path in"
                ' the program: expected for example spec.ports[0].name or data["a.b"]'
            )
        position = match.end()
        if match["name"] is not None:
            steps.append(match["name"])
        elif match["quoted"] is not None:
            steps.append(re.sub(r"\\(.)", r"\1", match["quoted"]))
        else:
            steps.append(_ANY if match["index"] == _ANY else int(match["index"]))
    return tuple(steps)


def contains(pattern: Path, path: Path) -> bool:
    """Return whether the pattern matches the path or one of its ancestors."""
    return len(pattern) <= len(path) and all(
        wanted in (_ANY, step) for wanted, step in zip(pattern, path, strict=False)
    )


def look_up(value: Value, path: Path) -> Value | Missing:
    """Return the value at a path, or MISSING. A value inside a secret is itself secret."""
    secret = False
    for step in path:
        if isinstance(value, Secret):
            value, secret = value.value, True
        if isinstance(value, dict) and step in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return MISSING
    return as_secret(value) if secret else value


def reset(news: Properties, olds: Properties, patterns: Sequence[str]) -> Properties:
    """Return ``news`` with the values of ``olds`` at each pattern, as ignore_changes requires.

    Remove a value that only ``news`` has, and restore a value that only ``olds`` has, if both have
    the object that contains the value. Raises EngineError on an invalid pattern.
    """
    result: Value = news
    for pattern in patterns:
        result = _reset(result, olds, parse_path(pattern))
    assert isinstance(result, dict)  # noqa: S101 - no path replaces the root with another type
    return result


def _reset(new: Value, old: Value, path: Path) -> Value:
    if not path:
        return old
    if isinstance(new, Secret) or isinstance(old, Secret):
        opened = _reset(_opened(new), _opened(old), path)
        return Secret(opened) if isinstance(new, Secret) else opened
    step, rest = path[0], path[1:]
    if isinstance(new, dict) and isinstance(old, dict):
        steps = sorted(new.keys() | old.keys()) if step == _ANY else [str(step)]
        result = dict(new)
        for key in steps:
            _reset_key(result, old, key, rest)
        return result
    if isinstance(new, list) and isinstance(old, list):
        return [
            _reset(item, old[index], rest) if step in (_ANY, index) and index < len(old) else item
            for index, item in enumerate(new)
        ]
    return new


def _reset_key(result: Properties, old: Properties, key: str, rest: Path) -> None:
    if rest:
        if key in result and key in old:
            result[key] = _reset(result[key], old[key], rest)
    elif key in old:
        result[key] = old[key]
    else:
        result.pop(key, None)


def _opened(value: Value) -> Value:
    return value.value if isinstance(value, Secret) else value
