"""Find authentication keys (`auth.rotations`) that pods use. No deploy may remove such a key."""

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
    """Return one line for each key that a deploy would remove although pods use the key.

    `stored` has the names of all resources in the state, `rotations` has the times in the settings.
    """
    present = {f"{_PREFIX}{int(moment.timestamp())}" for moment in rotations}
    return [refused_key(since) for since in keys_in_use({*stored} - present, present)]


def refused_key(since: int) -> str:
    """Return the refusal to remove a key that pods use; `since` is its Unix time."""
    return (
        f"auth.rotations: {datetime.fromtimestamp(since, UTC):%Y-%m-%dT%H:%M:%SZ}: pods"
        " still use the key of this time; add the time to the list again. To remove it"
        " later, wait until five minutes after the next time in the list"
    )


def keys_in_use(removed: Iterable[str], present: Iterable[str]) -> list[int]:
    """Return the times of removed keys that pods use now, or start to use within three minutes.

    Both arguments are names of resources; names of other resources than keys are ignored. `removed`
    has the resources that the deploy removes, and `present` those that exist after the deploy.
    """
    now = time.time()
    latest = max((since for since in _times(present) if since <= now - _GRACE), default=0)
    return sorted(since for since in _times(removed) if latest <= since < now + AHEAD)


def _times(names: Iterable[str]) -> set[int]:
    return {since for since in map(starts, names) if since}
