"""A stack of its own, whose settings tests edit."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, Deployed, local_cluster, write_stack


@pytest.fixture(scope="package")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    ports = local_cluster(2, api_port=19443, ssh_port=15222)
    with deployed(write_stack("test-edits", cluster=ports)) as stack:
        yield stack
