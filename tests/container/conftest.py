"""What holds for all tests in containers."""

from collections.abc import Iterator

import pytest

from tests.support.containers import none_left


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    """Containers that a test itself starts end with it; those of wider fixtures stay."""
    with none_left():
        yield
