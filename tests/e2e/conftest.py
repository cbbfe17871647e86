"""The dev stack, which `make up` brought up, and a folder of its own for each test."""

import uuid
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The dev stack with its two nodes idle."""
    dev = Cluster()
    assert (dev.directory / "ssh_config").exists(), "the dev stack is not up: run `make up`"
    dev.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
    return dev


@pytest.fixture
def folder(cluster: Cluster) -> Iterator[str]:
    """A folder in the user's home; afterwards it is gone, and so are the user's jobs."""
    path = f"/home/researcher/test-{uuid.uuid4().hex[:8]}"
    cluster.run(f"mkdir {path}")
    yield path
    cluster.run(f"scancel --user=researcher; rm -rf {path}")
