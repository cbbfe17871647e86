"""The stack that the tests on a real cluster share: like the dev stack, and beside it."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, local_cluster, write_stack


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep", action="store_true", help="leave the test stack running, for the next time"
    )


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The test stack with its two nodes idle."""
    stack = write_stack("test", cluster=local_cluster(2, api_port=15443, ssh_port=11222))
    try:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            stack.up()
        stack.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
        yield stack
    finally:
        if not request.config.getoption("--keep"):
            stack.down()
