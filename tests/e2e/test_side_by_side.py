"""A second stack stands beside the first, and goes without a trace."""

from collections.abc import Iterator
from typing import Any

import docker
import pytest

from tests.e2e.cluster import Cluster, eventually, local_cluster, write_stack


@pytest.fixture
def second() -> Iterator[Cluster]:
    other = write_stack("test-beside", cluster=local_cluster(1, api_port=17443, ssh_port=13222))
    yield other
    if other.stack_file.exists():
        other.down()


def docker_things(client: docker.DockerClient) -> dict[str, set[str]]:
    containers: Any = client.containers.list(all=True)
    return {
        "containers": {container.name for container in containers},
        "networks": {network.name for network in client.networks.list()},
        "volumes": {volume.name for volume in client.volumes.list()},
    }


def test_a_second_stack_comes_up_from_nothing_and_down_to_nothing(
    cluster: Cluster, second: Cluster
) -> None:
    client = docker.from_env()
    outlives = "/home/researcher/outlives"
    before = docker_things(client)

    second.up()
    assert sorted(second.run("srun --nodes=2 hostname").split()) == ["cpu-0", "cpu-1"]
    assert sorted(cluster.run("srun --nodes=2 hostname").split()) == ["cpu-0", "cpu-1"]
    second.run(f"echo kept >{outlives}")
    assert cluster.pod_uid("cpu-0") != second.pod_uid("cpu-0")

    # Both of its nodes at once, as when the machine is started again.
    for node in client.containers.list(filters={"name": f"slurmstack-{second.stack}-"}):
        node.restart()
    two_nodes = "timeout --kill-after=1 20 srun --nodes=2 hostname"
    eventually("it runs jobs again", lambda: second.ssh(two_nodes, check=False).stdout.split(), 180)
    assert second.run(f"cat {outlives}") == "kept"

    second.down()

    assert docker_things(client) == before, "all that it made is gone, and only that"
    assert not second.directory.exists()
    assert not second.state_file.exists()
    assert cluster.run("srun hostname") in ("cpu-0", "cpu-1")
