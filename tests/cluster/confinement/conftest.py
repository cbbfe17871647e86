"""What a test of jobs must not leave behind."""

from collections.abc import Iterator

import pytest

from tests.cluster.confinement.groups import groups
from tests.support.cluster import Cluster
from tests.support.waiting import becomes


@pytest.fixture
def nothing_left(cluster: Cluster) -> Iterator[None]:
    """No group of a job is left on any node after a test."""
    yield
    becomes("the groups of jobs", lambda: groups(cluster), [], timeout=120)
