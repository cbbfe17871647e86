"""Keys of `auth.rotations` that pods use, and that no deploy may therefore remove."""

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_PREFIX: Final = "auth-password-"
KEY: Final = rf"{_PREFIX}(\d+)"
"""Name of a key of `auth.rotations`, with the Unix time at which pods start to use it."""
AHEAD: Final = 180
"""Seconds until a new key is in every pod (docs/settings.md, `auth.rotations`)."""
_GRACE: Final = 300
"""Seconds for which pods accept the previous key (docs/settings.md, `auth.rotations`)."""


def starts(name: str) -> int | None:
    """Return the Unix time at which pods start to use a key of `auth.rotations`."""
    found = re.fullmatch(KEY, name)
    return int(found[1]) if found else None


def refused_keys(stored: Iterable[str], rotations: Iterable[datetime]) -> list[str]:
    """Return one line for each key of the state that a deploy would remove although it is in use.

    `stored` are the names of all resources in the state, `rotations` the times in the settings.
    """
    present = {f"{_PREFIX}{int(moment.timestamp())}" for moment in rotations}
    return [refused_key(since) for since in keys_in_use({*stored} - present, present)]


def refused_key(since: int) -> str:
    """Return the refusal to remove a key that pods use; `since` is its Unix time."""
    return (
        f"auth.rotations: {datetime.fromtimestamp(since, UTC):%Y-%m-%dT%H:%M:%SZ}: pods use its"
        " key; add the time again, and remove it five minutes after a later one"
    )


def keys_in_use(removed: Iterable[str], present: Iterable[str]) -> list[int]:
    """Return the times of those removed keys that pods use now, or within three minutes.

    Both are names of resources, of which some are keys. `present` are those after the deploy.
    """
    now = time.time()
    latest = max((since for since in _times(present) if since <= now - _GRACE), default=0)
    return sorted(since for since in _times(removed) if latest <= since < now + AHEAD)


def _times(names: Iterable[str]) -> set[int]:
    return {since for since in map(starts, names) if since}
