"""Values for display: short, on one line, and without secrets."""

from __future__ import annotations

import json
from typing import Any, Final

from engine.values import Secret, Unknown, Value

SECRET_SHOWN: Final = "[secret]"  # noqa: S105 - a placeholder
UNKNOWN_SHOWN: Final = "[unknown]"
_WIDTH: Final = 72


def shown(value: Value) -> str:
    """Return a value as JSON, truncated if long."""
    text = in_full(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def in_full(value: Value) -> str:
    """Return a value as JSON."""
    if isinstance(value, Secret):
        return SECRET_SHOWN
    if isinstance(value, Unknown):
        return UNKNOWN_SHOWN
    return json.dumps(redacted(value), ensure_ascii=False)


def redacted(value: Value, unknown: str = UNKNOWN_SHOWN) -> Any:
    """Return a value as JSON data, with placeholders for secret and unknown parts."""
    if isinstance(value, Secret):
        return SECRET_SHOWN
    if isinstance(value, Unknown):
        return unknown
    if isinstance(value, dict):
        return {key: redacted(item, unknown) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item, unknown) for item in value]
    return value
