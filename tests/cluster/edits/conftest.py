"""A separate stack whose settings the tests edit."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, Deployed, write_test_stack


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    # Only the readiness probe drains nodes without a jail: the check would sometimes be earlier.
    health = {"checks": {"jail": False}}
    with deployed(write_test_stack("edits", health=health)) as stack:
        yield stack
