"""A separate stack whose nodesets the tests edit."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, Deployed, write_test_stack


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    with deployed(write_test_stack("nodesets")) as stack:
        yield stack
