"""Derive what a test needs (nothing, containers or a cluster) from its folder."""

import functools
from pathlib import Path
from typing import Final

from local.paths import ROOT

TESTS: Final = ROOT / "tests"
NOTHING: Final = ("unit", "policy")
"""Folders whose tests need neither a container nor a cluster."""
NEEDS: Final = ("container", "cluster", "machine")
"""Folders whose name says what their tests need. The name is also the marker of these tests."""


@functools.cache
def need_of(path: Path) -> str | None:
    """Return the marker of a file's tests, or None if the tests need no container or cluster."""
    return next((need for need in NEEDS if path.is_relative_to(TESTS / need)), None)
