"""Options, markers and Docker for all tests."""

import fcntl
import gc
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from local import host
from local.paths import ENGINE, LOCK, locked
from tests.support.layout import need_of
from tests.support.once import shared

pytest_plugins = ["tests.support.report"]

_FOUND = pytest.StashKey[bool]()
"""Whether a Docker engine answered before the tests started. If so, the tests do not stop it."""
_USERS = pytest.StashKey[IO[str]]()
"""A shared lock. Each run of pytest holds it to its end, so that only the last run stops Docker."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep", action="store_true", help="keep the test stack running for the next run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep the values that all workers share (tests/support/once.py) until the end of the run."""
    if not hasattr(config, "workerinput"):
        stack = ExitStack()
        stack.enter_context(shared())
        config.add_cleanup(stack.close)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude modules and tests from garbage collection, because they live until the run ends.

    Tests create few reference cycles, so let the garbage collector run rarely afterwards.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, 10, 50)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark each test by its folder, before pytest selects tests with `-m`."""
    for item in items:
        if need := need_of(item.path):
            item.add_marker(need)


class _ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Run the tests of a folder in one worker: they share fixtures, and some need a fixed order.

    xdist's own `loadgroup` has no effect with pytest 9.2, which keeps no `_nodeid`.
    """

    def _split_scope(self, nodeid: str) -> str:
        return str(Path(nodeid.partition("::")[0]).parent)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFolder | None:
    return _ByFolder(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_sessionstart(session: pytest.Session) -> None:
    if not _is_worker(session):
        session.config.stash[_FOUND] = host.connect() is not None
        session.config.stash[_USERS] = _share(ENGINE / "tests.lock")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the Docker engine that the tests have started, unless another run still uses it."""
    if _is_worker(session) or session.config.stash[_FOUND]:
        return
    client = host.connect()
    if client is None:
        return
    try:
        fcntl.flock(session.config.stash[_USERS], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    # Wait for a `make up` that may be creating a cluster.
    with locked(LOCK, print):
        host.stop_own_engine(client, print)


def _is_worker(session: pytest.Session) -> bool:
    """Return whether this is a worker of pytest-xdist; workers end before the main process."""
    return hasattr(session.config, "workerinput")


def _share(path: Path) -> IO[str]:
    """Take a shared lock, which lasts until the file is closed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file
