"""A folder of its own for each test."""

import uuid
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster


@pytest.fixture
def folder(cluster: Cluster) -> Iterator[str]:
    """A folder in the user's home; afterwards it is gone, and so are the user's jobs."""
    path = f"/home/researcher/test-{uuid.uuid4().hex[:8]}"
    cluster.run(f"mkdir {path}")
    yield path
    cluster.run(f"scancel --user=researcher; rm -rf {path}")
