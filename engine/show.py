"""Values as people see them: short, on one line, and no secret among them."""

from __future__ import annotations

import json
from typing import Any, Final

from engine.values import Secret, Unknown, Value

SECRET_SHOWN: Final = "[secret]"  # noqa: S105 - what is shown instead of one
UNKNOWN_SHOWN: Final = "[unknown]"
_WIDTH: Final = 72


def shown(value: Value) -> str:
    """A value as JSON, cut where it is long."""
    if isinstance(value, Secret):
        return SECRET_SHOWN
    if isinstance(value, Unknown):
        return UNKNOWN_SHOWN
    text = json.dumps(redacted(value), ensure_ascii=False)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def redacted(value: Value, unknown: str = UNKNOWN_SHOWN) -> Any:
    """A value as JSON has it, with words in place of what is secret or unknown."""
    if isinstance(value, Secret):
        return SECRET_SHOWN
    if isinstance(value, Unknown):
        return unknown
    if isinstance(value, dict):
        return {key: redacted(item, unknown) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item, unknown) for item in value]
    return value
