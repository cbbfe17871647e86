"""The stack that the tests on a real cluster share; it resembles the dev stack."""

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cluster import Cluster, Deployed, write_test_stack


@pytest.fixture(scope="session")
def deployed(request: pytest.FixtureRequest) -> Deployed:
    """Bring a stack of two Slurm nodes up; take it down afterwards unless --keep is set."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    @contextmanager
    def up(stack: Cluster) -> Iterator[Cluster]:
        try:
            with capture.global_and_fixture_disabled():
                try:
                    stack.up()
                except subprocess.CalledProcessError:
                    print(stack.state())
                    raise
            # A kept stack may have pods from before an edit.
            stack.wait_for_rollouts()
            stack.wait_for_nodes("cpu-0", "cpu-1", timeout=120)
            yield stack
        finally:
            if not stack.stack_file.exists():
                pass  # a test took it down
            elif request.config.getoption("--keep"):
                with capture.global_and_fixture_disabled():
                    print(f"\nkept: make down STACK={stack.stack} ends it")
            else:
                stack.down()

    return up


@pytest.fixture(scope="session")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    """The test stack with its two nodes idle.

    Root may run jobs: tests check that the jail confines them, too. The limit of processes of a job
    fits its memory.
    """

    def limit(values: dict[str, Any]) -> None:
        values["nodesets"][0]["isolation"] = {"processes": 256}

    slurm = {"extra": {"slurm.conf": ["DisableRootJobs=NO"]}}
    with deployed(write_test_stack("shared", edit=limit, slurm=slurm)) as stack:
        yield stack


@pytest.fixture
def folder(cluster: Cluster) -> Iterator[str]:
    """A folder in the user's home. Teardown cancels the user's jobs and removes the folder."""
    gone = 'timeout 60 sh -c "while squeue --noheader --me | grep -q .; do sleep 0.1; done"'
    path = f"/home/researcher/test-{uuid.uuid4().hex[:8]}"
    cluster.run(f"mkdir {path}")
    yield path
    cluster.run(f"scancel --me; {gone}; rm -rf {path}")
