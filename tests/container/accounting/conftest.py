"""One cluster with accounting for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.accounting import Cluster, accounted, one_cluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    with one_cluster(accounted()) as running:
        yield running
