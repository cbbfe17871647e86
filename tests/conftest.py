"""The stack that the tests on a real cluster share: like the dev stack, and beside it."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from local import host
from local.paths import LOCK, locked
from tests.e2e.cluster import ROOT, Cluster, local_cluster, write_stack

pytest_plugins = ["tests.support.report"]

_CHECKOUT = int(hashlib.sha256(str(ROOT).encode()).hexdigest()[:4], 16)
"""A number for this folder: checkouts on one machine test beside each other."""
_FOUND = pytest.StashKey[bool]()
"""Whether Docker answered before the tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep", action="store_true", help="leave the test stack running, for the next time"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_FOUND] = host.connect() is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stops a Docker that the tests have started."""
    client = host.connect()
    if client is not None and not session.config.stash[_FOUND]:
        # Others may just be making a cluster.
        with locked(LOCK, print):
            host.stop_own_engine(client, print)


Deployed = Callable[[Cluster], AbstractContextManager[Cluster]]


@pytest.fixture(scope="session")
def deployed(request: pytest.FixtureRequest) -> Deployed:
    """Brings a stack of two nodes up, and takes it down afterwards unless it is to be kept."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    @contextmanager
    def up(stack: Cluster) -> Iterator[Cluster]:
        try:
            with capture.global_and_fixture_disabled():
                stack.up()
            stack.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
            yield stack
        finally:
            if request.config.getoption("--keep"):
                with capture.global_and_fixture_disabled():
                    print(f"\nkept: make down STACK={stack.stack} ends it")
            else:
                stack.down()

    return up


@pytest.fixture(scope="session")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    """The test stack with its two nodes idle."""
    port = 20000 + 2 * (_CHECKOUT % 5000)
    with deployed(
        write_stack(f"test-{_CHECKOUT:04x}", cluster=local_cluster(2, port, port + 1))
    ) as stack:
        yield stack
