"""Options, markers and Docker for all tests."""

import gc
from collections.abc import Generator, Iterable
from contextlib import ExitStack

import pytest

from local import host
from local.paths import LOCK, locked
from tests.support.layout import need_of
from tests.support.once import shared

pytest_plugins = ["tests.support.report"]

_FOUND = pytest.StashKey[bool]()
"""Whether Docker answered before the tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep", action="store_true", help="leave the test stack running, for the next time"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is recorded once for all workers as long as the run lasts."""
    if not hasattr(config, "workerinput"):
        stack = ExitStack()
        stack.enter_context(shared())
        config.add_cleanup(stack.close)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector modules and tests: they stay for as long as the run lasts."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark each test by its folder, before `-m` selects."""
    for item in items:
        if need := need_of(item.path):
            item.add_marker(need)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_FOUND] = host.connect() is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stops a Docker that the tests have started."""
    client = host.connect()
    if client is not None and not session.config.stash[_FOUND]:
        # Others may just be making a cluster.
        with locked(LOCK, print):
            host.stop_own_engine(client, print)
