"""Fixtures of all tests in containers."""

from collections.abc import Iterator

import pytest

from tests.support.containers import none_left


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    """Remove the containers that the test itself started. Containers of wider fixtures stay."""
    with none_left():
        yield
