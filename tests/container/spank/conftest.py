"""One node with a jail for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.containers import Start, containers
from tests.support.slurmctld import resume
from tests.support.spank import NODE, Node, one_node
from tests.support.waiting import eventually


@pytest.fixture(scope="package")
def start_container() -> Iterator[Start]:
    with containers("slurmstack-test") as start:
        yield start


@pytest.fixture(scope="package")
def running(start_container: Start) -> Iterator[Node]:
    with one_node(start_container) as node:
        yield node


@pytest.fixture
def node(running: Node) -> Iterator[Node]:
    """The node with the default isolation. After the test, nothing of a job may be left on it."""
    running.isolate()
    yield running
    running.controller.run("scancel --state=RUNNING --quiet", user="root")
    running.controller.run("scancel --user=researcher --quiet; scancel --user=student --quiet")
    eventually("nothing of a job is left", running.is_clean)
    resume(running.controller, NODE)
