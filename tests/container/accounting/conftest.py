"""A cluster with accounting for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.accounting import NODE, Cluster, accounted, one_cluster
from tests.support.slurmctld import resume


@pytest.fixture(scope="package")
def running() -> Iterator[Cluster]:
    with one_cluster(accounted()) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """The cluster. Its node accepts jobs."""
    resume(running.slurmctld, NODE)
    return running
