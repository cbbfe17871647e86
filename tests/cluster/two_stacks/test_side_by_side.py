"""A second stack on one Kubernetes node, beside the first: restarted, stopped, and gone."""

from typing import Any

import docker
import pytest

from local.containers import Engine
from tests.cluster.two_stacks.choices import SecondOn
from tests.support.cluster import Cluster
from tests.support.commands import execute
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def on_one_node(second_on: SecondOn) -> Cluster:
    """The second stack on one Kubernetes node; a node that it had beside that one is removed."""
    return second_on(1)


@pytest.fixture
def second(second_on: SecondOn, on_one_node: Cluster) -> Cluster:
    """The same, up whatever the test before did to it."""
    if not runs(on_one_node):
        second_on(1)
    on_one_node.wait_for_login(300)
    return on_one_node


def runs(stack: Cluster) -> bool:
    """Whether Docker runs a stack's Kubernetes nodes."""
    nodes = Engine(docker.from_env(), stack.stack).nodes().values()
    return bool(nodes) and all(node.status == "running" for node in nodes)


def docker_things(stack: Cluster) -> dict[str, set[str]]:
    """What Docker has of a stack."""
    client, name = docker.from_env(), f"slurmstack-{stack.stack}"
    containers: Any = client.containers.list(all=True)
    found = {
        "containers": {container.name for container in containers},
        "networks": {network.name for network in client.networks.list()},
        "volumes": {volume.name for volume in client.volumes.list()},
    }
    return {
        kind: {each for each in names if each == name or each.startswith(f"{name}-")}
        for kind, names in found.items()
    }


def test_one_kubernetes_node_carries_both_slurm_nodes(second: Cluster) -> None:
    assert docker_things(second)["containers"] == {f"slurmstack-{second.stack}-node-0"}
    assert [pod["spec"]["nodeName"] for pod in second.pods("worker")] == ["node-0", "node-0"]


def test_a_second_controller_that_finds_no_node_holds_up_nothing(cluster: Cluster) -> None:
    assert sorted(cluster.controllers().values()) == ["", "node-0"]
    assert cluster.serves_on("node-0")


def test_two_stacks_run_their_own_jobs(cluster: Cluster, second: Cluster) -> None:
    for stack in (cluster, second):
        assert sorted(stack.run("srun --nodes=2 hostname").split()) == ["cpu-0", "cpu-1"]
    assert cluster.pod_uid("cpu-0") != second.pod_uid("cpu-0")


def test_a_stack_comes_back_when_docker_restarts_its_nodes(second: Cluster) -> None:
    second.run("echo kept >outlives")
    for node in Engine(docker.from_env(), second.stack).nodes().values():
        node.restart()

    job = "timeout --kill-after=1 20 srun --nodes=2 cat outlives"
    eventually("jobs run again", lambda: second.ssh(job, check=False).stdout == "kept\n" * 2, 180)


def test_a_stopped_stack_goes_on_with_its_queue(second: Cluster) -> None:
    held = second.run("sbatch --hold --parsable --wrap true")

    execute(["make", "stop", f"STACK={second.stack}"])
    assert execute(["make", "status", f"STACK={second.stack}"], check=False).returncode != 0
    second.up()

    assert second.run(f"squeue --noheader --jobs={held} --format=%T") == "PENDING"


def test_down_removes_all_of_a_stack_and_only_that(cluster: Cluster, second: Cluster) -> None:
    first = docker_things(cluster)
    assert first["containers"]
    assert docker_things(second)["containers"]

    second.down()

    assert docker_things(cluster) == first
    assert not any(docker_things(second).values())
    assert not second.directory.exists()
    assert not second.state_file.exists()
    assert cluster.run("srun hostname") in ("cpu-0", "cpu-1")
