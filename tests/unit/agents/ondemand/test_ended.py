"""Pods that the kubelet rejects or evicts. Kubernetes keeps such pods, but never restarts them."""

from pathlib import Path

from agents.ondemand.__main__ import Agent
from tests.unit.agents.ondemand.world import NODE, World, agent_of


def run(agent: Agent, world: World, seconds: int) -> None:
    for _ in range(0, seconds, 5):
        agent.look(world.now)
        world.pass_time(5)


def test_node_starts_if_the_kubelet_rejects_only_its_first_pod(agent: Agent, world: World) -> None:
    world.rejects = True
    run(agent, world, 5)
    assert world.pods[NODE].has_ended
    world.rejects = False
    run(agent, world, 60)

    assert world.is_ready(NODE)
    assert world.boxes[NODE].comment == ""


def test_start_ends_if_the_kubelet_rejects_two_pods(agent: Agent, world: World) -> None:
    world.rejects = True
    run(agent, world, 30)

    reason = world.boxes[NODE].reason
    assert reason == "slurmstack:start:broken: Evicted: The node was low on memory"
    assert NODE not in world.pods


def test_node_whose_pod_was_evicted_sleeps_and_can_start_again(agent: Agent, world: World) -> None:
    run(agent, world, 60)
    world.end_pod(world.boxes[NODE])
    run(agent, world, 10)
    assert NODE not in world.pods
    assert NODE not in world.awake()

    world.submit("gpu", 1, 10)
    run(agent, world, 300)
    assert world.jobs[1].is_done


def test_job_gets_another_node_if_a_kubelet_has_died(world: World, tmp_path: Path) -> None:
    world = World({"gpu": 2})
    agent = agent_of(world, tmp_path, {"gpu": 2})
    world.submit("gpu", 1, 10)
    run(agent, world, 60)
    assert world.jobs[1].is_done
    world.set_power(world.boxes[NODE], "POWER_DOWN")
    world.lose_kubelet(world.boxes[NODE])
    run(agent, world, 150)
    world.submit("gpu", 1, 10)
    run(agent, world, 300)

    assert world.jobs[2].is_done
    assert world.boxes[NODE].reason.startswith("slurmstack:start:broken: pod gpu-0 is stuck")
