"""One node with two CPUs, whose slurmd requires confinement.

A test module may define another fixture `node`.
"""

from collections.abc import Iterator

import pytest

from tests.support.containers import containers
from tests.support.spank import Node, one_node
from tests.support.waiting import becomes


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with containers("slurmstack-test") as start, one_node(start, "CPUs=2", "required") as node:
        yield node


@pytest.fixture(autouse=True)
def nothing_runs(node: Node) -> Iterator[None]:
    yield
    node.controller.run("scancel --user=researcher; scancel --user=student")
    becomes(
        "the state of the node",
        lambda: node.controller.run("sinfo --noheader --format=%T"),
        "idle\n",
    )
    node.isolate()
