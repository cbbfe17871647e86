"""A folder for each test, and a job that outlasts its time limit beside all of them."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster


@pytest.fixture
def folder(cluster: Cluster) -> Iterator[str]:
    """A folder in the user's home; afterwards it is gone, and so are the jobs from there.

    No other jobs: one of the suite's own runs on while tests come and go.
    """
    path = f"/home/researcher/test-{uuid.uuid4().hex[:8]}"
    cluster.run(f"mkdir {path}")
    yield path
    mine = f"squeue --me --noheader --format='%A %Z' | awk '$2 == \"{path}\" {{ print $1 }}'"
    cluster.run(f"{mine} | xargs --no-run-if-empty scancel; rm -rf {path}")


OVERDUE = """#!/bin/bash
#SBATCH --job-name=overdue --time=00:01:00 --signal=B:USR1@20 --output=%x
trap 'echo "the end is near"' USR1
while true; do sleep 1; done"""


@pytest.fixture(scope="package")
def overdue_folder(cluster: Cluster) -> Iterator[str]:
    path = f"/home/researcher/test-{uuid.uuid4().hex[:8]}"
    cluster.run(f"mkdir {path}")
    yield path
    cluster.run(f"rm -rf {path}")


@pytest.fixture(scope="package", autouse=True)
def overdue(cluster: Cluster, overdue_folder: str) -> Iterator[int]:
    """A job that takes longer than its time limit of a minute, the least that Slurm has.

    It runs beside all the tests, so that only one of them waits for what is left of the minute.
    """
    job = cluster.submit(overdue_folder, OVERDUE)
    yield job
    cluster.run(f"scancel {job}")
