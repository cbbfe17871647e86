"""slurmctld, two slurmd and the exporter in containers, with the configuration of a stack."""

import secrets
import time
from collections.abc import Iterator

import httpx
import pytest

from components import conventions as c
from tests.container.exporter.cluster import ENVIRONMENT, SLURM, Cluster, etc
from tests.support.containers import Start, containers, put
from tests.support.slurmctld import (
    accounts_of,
    controller_address,
    prepare,
    start_controller,
    start_worker,
)
from tests.support.stack import alone


@pytest.fixture(scope="package")
def start_container() -> Iterator[Start]:
    with containers("slurmstack-test") as start:
        yield start


@pytest.fixture(scope="package")
def cluster(start_container: Start) -> Iterator[Cluster]:
    secret = secrets.token_hex(64)
    config = alone(lambda values: values.update(slurm=SLURM))
    files = etc(config) | accounts_of(config)
    controller = start_controller(start_container, secret)
    put(controller.container, files)
    controller.start()
    workers = {}
    for node in ("cpu-0", "cpu-1"):
        description = "CPUs=2 RealMemory=1000 Feature=cpu"
        workers[node] = start_worker(start_container, secret, node, description, controller)
        put(workers[node].container, files)
    container = start_container(
        "agents",
        extra_hosts={controller_address(): controller.address},
        # Replace the image's entrypoint, which expects the name of a module.
        entrypoint=["env"],
    )
    exporter = prepare(container, secret)
    put(container, files)
    container.exec_run(
        ["python3", "-m", "agents.exporter"],
        environment=ENVIRONMENT,
        user=f"{c.EXPORTER_ID}:{c.EXPORTER_ID}",
        detach=True,
    )
    running = Cluster(controller, exporter, workers)
    _await_both(running)
    yield running
    controller.stop()


def _await_both(cluster: Cluster) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if cluster.scrape().value("slurm_nodes", state="idle") == 2:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, cluster.controller.log()
        time.sleep(0.2)
