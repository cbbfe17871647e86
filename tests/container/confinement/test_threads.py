"""A node configured with two CPUs that are threads of one core."""

from collections.abc import Iterator

import pytest

from tests.support.containers import containers
from tests.support.spank import Node, one_node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    cpus = "CPUs=2 Sockets=1 CoresPerSocket=1 ThreadsPerCore=2"
    with containers("slurmstack-test") as start, one_node(start, cpus, "required") as node:
        yield node


@pytest.mark.parametrize(
    ("options", "cpus"),
    [
        ("-n1", ["2"]),
        ("-n1 --hint=nomultithread", ["1"]),
        ("-n1 --threads-per-core=1", ["1"]),
        ("-n2 --cpu-bind=threads", ["1", "1"]),
        ("-n2 --cpu-bind=cores", ["2", "2"]),
    ],
)
def test_job_gets_whole_cores_and_the_requested_threads(
    node: Node, options: str, cpus: list[str]
) -> None:
    assert node.user(f"srun --quiet --mem=50 {options} nproc").split() == cpus


def test_job_with_one_thread_per_core_needs_more_cores(node: Node) -> None:
    output = node.user("srun --quiet --mem=50 -n2 --hint=nomultithread true 2>&1 || true")

    assert "Requested node configuration is not available" in output
