"""The stack that the tests on a real cluster share; it resembles the dev stack."""

import subprocess
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cluster import Cluster, Deployed, write_test_stack

_LAST = pytest.StashKey[Cluster]()
"""The stack that was deployed last."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Function) -> Generator[None, None, None]:
    yield from _explained(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, None, None]:
    yield from _explained(item)


def _explained(item: pytest.Function) -> Generator[None, None, None]:
    """Add the stack's state to the error of a failed test."""
    try:
        yield
    except (AssertionError, subprocess.SubprocessError) as error:
        if stack := item.config.stash.get(_LAST, None):
            error.add_note(stack.state())
        raise


@pytest.fixture(scope="session")
def deployed(request: pytest.FixtureRequest) -> Deployed:
    """Return a context manager that deploys a stack, and waits until all its nodes are idle.

    It removes the stack afterwards, unless the option --keep is set.
    """
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
            # Wait, because a stack that an earlier run kept may still have outdated pods.
            stack.wait_for_rollouts()
            stack.wait_for_nodes(*stack.wanted_nodes(), timeout=120)
            request.config.stash[_LAST] = stack
            yield stack
        finally:
            if not stack.stack_file.exists():
                pass  # A test removed the stack.
            elif request.config.getoption("--keep"):
                with capture.global_and_fixture_disabled():
                    print(f"\nthe stack is kept; to remove it, run: make down STACK={stack.stack}")
            else:
                stack.down()

    return up


@pytest.fixture(scope="session")
def cluster(deployed: Deployed) -> Iterator[Cluster]:
    """The test stack with its two nodes idle.

    Root may run jobs, so that tests can check that root's jobs are confined too. The process limit
    of a job is low, so that a job reaches the process limit before its memory limit.
    """

    def limit(values: dict[str, Any]) -> None:
        values["nodesets"][0]["isolation"] = {"processes": 256}

    slurm = {"extra": {"slurm.conf": ["DisableRootJobs=NO"]}}
    with deployed(write_test_stack("shared", edit=limit, slurm=slurm)) as stack:
        yield stack


@pytest.fixture
def folder(cluster: Cluster) -> Iterator[str]:
    """A folder in the user's home. The teardown cancels the user's jobs and removes the folder."""
    gone = 'timeout 60 sh -c "while squeue --noheader --me | grep -q .; do sleep 0.1; done"'
    path = f"/home/researcher/test-{uuid.uuid4().hex[:8]}"
    cluster.run(f"mkdir {path}")
    yield path
    cluster.run(f"scancel --me; {gone}; rm -rf {path}")
