"""Check for leftover cgroups after tests that create jobs."""

from collections.abc import Iterator

import pytest

from tests.cluster.confinement.groups import groups
from tests.support.cluster import Cluster
from tests.support.waiting import becomes


@pytest.fixture
def nothing_left(cluster: Cluster) -> Iterator[None]:
    """Check after a test that no job's cgroup is left on any node."""
    yield
    becomes("the list of jobs' cgroups", lambda: groups(cluster), [], timeout=120)
