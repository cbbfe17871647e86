"""The first stack continues while a second one is restarted, stopped and removed."""

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
    """The second stack on one Kubernetes node. If the stack had two nodes, one is removed."""
    return second_on(1)


@pytest.fixture
def second(second_on: SecondOn, on_one_node: Cluster) -> Cluster:
    """The second stack, started again if the previous test stopped the stack."""
    if not runs(on_one_node):
        second_on(1)
    on_one_node.wait_for_login(300)
    return on_one_node


def runs(stack: Cluster) -> bool:
    """Return whether Docker runs a stack's Kubernetes nodes."""
    nodes = Engine(docker.from_env(), stack.stack).nodes().values()
    return bool(nodes) and all(node.status == "running" for node in nodes)


def docker_things(stack: Cluster) -> dict[str, set[str]]:
    """Return the names of a stack's containers, networks and volumes in Docker."""
    client, name = docker.from_env(), f"slurmstack-{stack.stack}"
    containers: Any = client.containers.list(all=True)
    things = {
        "containers": {container.name for container in containers},
        "networks": {network.name for network in client.networks.list()},
        "volumes": {volume.name for volume in client.volumes.list()},
    }
    return {
        kind: {each for each in names if each == name or each.startswith(f"{name}-")}
        for kind, names in things.items()
    }


def test_one_kubernetes_node_runs_both_slurm_nodes(second: Cluster) -> None:
    assert docker_things(second)["containers"] == {f"slurmstack-{second.stack}-node-0"}
    assert [pod["spec"]["nodeName"] for pod in second.pods("worker")] == ["node-0", "node-0"]


def test_pending_second_controller_does_not_block_the_deploy(cluster: Cluster) -> None:
    assert sorted(cluster.controllers().values()) == ["", "node-0"]
    assert cluster.serves_on("node-0")


def test_two_stacks_run_their_own_jobs(cluster: Cluster, second: Cluster) -> None:
    for stack in (cluster, second):
        assert sorted(stack.run("srun --nodes=2 hostname").split()) == ["cpu-0", "cpu-1"]
    assert cluster.pod_uid("cpu-0") != second.pod_uid("cpu-0")


def test_stack_works_again_after_docker_restarts_its_nodes(second: Cluster) -> None:
    second.run("echo kept >outlives")
    for node in Engine(docker.from_env(), second.stack).nodes().values():
        node.restart()

    job = "timeout --kill-after=1 20 srun --nodes=2 cat outlives"
    eventually("jobs run again", lambda: second.ssh(job, check=False).stdout == "kept\n" * 2, 180)


def test_stopped_stack_keeps_its_job_queue(second: Cluster) -> None:
    held = second.run("sbatch --hold --parsable --wrap true")

    execute(["make", "stop", f"STACK={second.stack}"])
    assert execute(["make", "status", f"STACK={second.stack}"], check=False).returncode != 0
    second.up()

    assert second.run(f"squeue --noheader --jobs={held} --format=%T") == "PENDING"


def test_make_down_removes_one_stack_and_nothing_else(cluster: Cluster, second: Cluster) -> None:
    first = docker_things(cluster)
    assert first["containers"]
    assert docker_things(second)["containers"]

    second.down()

    assert docker_things(cluster) == first
    assert not any(docker_things(second).values())
    assert not second.directory.exists()
    assert not second.state_file.exists()
    assert cluster.run("srun hostname") in ("cpu-0", "cpu-1")
