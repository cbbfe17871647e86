"""A separate stack whose settings the tests edit."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, Deployed, write_test_stack


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    # Disable the health check `jail`. The tests expect the readiness probe to drain a node without
    # a jail, but the health check would sometimes drain the node first.
    health = {"checks": {"jail": False}}
    with deployed(write_test_stack("edits", health=health)) as stack:
        yield stack
