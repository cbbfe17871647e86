"""A container of the controller's image, in which each test starts slurmctld."""

import secrets
from collections.abc import Iterator

import pytest

from tests.support.containers import Start, containers
from tests.support.slurmctld import Slurmctld, start_controller


@pytest.fixture(scope="package")
def start_container() -> Iterator[Start]:
    with containers("slurmstack-test") as start:
        yield start


@pytest.fixture(scope="package")
def prepared(start_container: Start) -> Slurmctld:
    return start_controller(start_container, secrets.token_hex(64))


@pytest.fixture
def slurmctld(prepared: Slurmctld) -> Iterator[Slurmctld]:
    """slurmctld, which the test starts and the fixture stops."""
    yield prepared
    prepared.stop()
