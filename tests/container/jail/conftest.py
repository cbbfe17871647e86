"""Volumes for all tests of this folder."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.container.jail.volumes import Volumes
from tests.support.containers import containers


@pytest.fixture(scope="package")
def volumes() -> Iterator[Volumes]:
    with contextlib.ExitStack() as stack, containers("storage-jail") as start:
        yield Volumes(start, stack)
