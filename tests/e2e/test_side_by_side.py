"""A second stack stands beside the first, and goes without a trace."""

from collections.abc import Iterator
from typing import Any

import docker
import pytest
import yaml

from tests.e2e.cluster import ROOT, Cluster, execute

STACK = "beside"


@pytest.fixture
def second() -> Iterator[Cluster]:
    document = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    document["config"] |= {
        "slurmstack:cluster_name": STACK,
        "slurmstack:cluster": {"kind": "local", "nodes": 1, "api_port": 17443, "ssh_port": 13222},
    }
    document["config"]["slurmstack:nodesets"][0]["replicas"] = 1
    document["config"]["slurmstack:users"][0]["ssh_key_files"] = [f".local/{STACK}/id_ed25519.pub"]
    other = Cluster(STACK)
    other.stack_file.write_text(yaml.safe_dump(document))
    yield other
    execute(["make", "down", f"STACK={STACK}"], check=False, timeout=300)
    other.stack_file.unlink()


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
    before = docker_things(client)

    execute(["make", "up", f"STACK={STACK}", "ENGINE=embedded"], timeout=500)
    assert second.run("srun hostname") == "cpu-0"
    assert sorted(cluster.run("srun --nodes=2 hostname").split()) == ["cpu-0", "cpu-1"]
    assert cluster.pod_uid("cpu-0") != second.pod_uid("cpu-0")

    execute(["make", "down", f"STACK={STACK}", "ENGINE=embedded"], timeout=300)

    assert docker_things(client) == before, "all that it made is gone, and only that"
    assert not second.directory.exists()
    assert not second.state_file.exists()
    assert cluster.run("srun hostname") in ("cpu-0", "cpu-1")
