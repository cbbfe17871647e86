"""Values that all workers of one pytest run share. The first worker that needs a value makes it.

Each run of pytest creates a folder for the values, and removes it at the end.
"""

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from local.paths import locked

_FOLDER = "SLURMSTACK_SHARED_BY_WORKERS"
"""Environment variable with the path of the folder, which workers inherit."""

Made = TypeVar("Made")


@contextmanager
def shared() -> Iterator[None]:
    """Share values between this process and the workers that it starts in the `with` block."""
    with TemporaryDirectory(prefix="slurmstack-tests-") as folder:
        os.environ[_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[_FOLDER]


def once(key: str, make: Callable[[], Made]) -> Made:
    """Return a copy of the value for this key; the first caller makes the value.

    The key must name everything that the value depends on. Errors are not stored.
    """
    folder = os.environ.get(_FOLDER)
    if folder is None:
        return make()
    path = Path(folder, hashlib.sha256(key.encode()).hexdigest())
    with locked(path.with_suffix(".lock"), lambda _text: None):
        if not path.exists():
            path.write_bytes(pickle.dumps(make()))
        found: Made = pickle.loads(path.read_bytes())  # noqa: S301  # written by this run
        return found
