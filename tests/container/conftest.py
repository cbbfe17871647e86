"""Fixtures of all tests in containers."""

from collections.abc import Iterator

import pytest

from tests.support.containers import none_left


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    """Remove the containers that the test started. Keep those of module and package fixtures."""
    with none_left():
        yield
