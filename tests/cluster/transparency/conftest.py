"""A folder for each test, and a job that exceeds its time limit while the tests run."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster


@pytest.fixture
def folder(cluster: Cluster) -> Iterator[str]:
    """A folder in the user's home. The teardown removes it and cancels the jobs of this folder.

    The teardown cancels no other jobs, because the job `overdue` runs during several tests.
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
    """A job that exceeds its time limit of one minute, the shortest that Slurm has.

    The job runs during other tests, so only one test waits for the rest of the minute.
    """
    job = cluster.submit(overdue_folder, OVERDUE)
    yield job
    cluster.run(f"scancel {job}")
