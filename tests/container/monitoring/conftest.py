"""A Prometheus container for each test file."""

from collections.abc import Iterator

import pytest
from docker.models.containers import Container

from tests.container.monitoring.promtool import RULES, THERE
from tests.support.containers import Start, containers, put


@pytest.fixture(scope="module")
def start_container() -> Iterator[Start]:
    with containers("slurmstack-test") as start:
        yield start


@pytest.fixture(scope="module")
def container(start_container: Start) -> Container:
    prometheus = start_container("monitoring")
    files = {file.relative_to(RULES): file.read_text() for file in RULES.rglob("*.yaml")}
    put(prometheus, {f"{THERE}/{path}": text for path, text in files.items()})
    return prometheus
