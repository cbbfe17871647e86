"""slurmctld has lost its last changes: a pod is ready, but its node still starts in Slurm."""

import pytest

from agents.ondemand.__main__ import PROBLEMS, Agent
from agents.ondemand.plan import SETTLING
from tests.unit.agents.ondemand.world import NODE, World


@pytest.fixture
def agent(agent: Agent, world: World) -> Agent:
    """The agent of a node whose pod is ready, but whose slurmd has not registered."""
    agent.look(world.now)
    world.pass_time(60)
    world.boxes[NODE].flags = {"POWERING_UP", "NOT_RESPONDING"}
    agent.look(world.now)
    return agent


def is_deleted(world: World) -> bool:
    return world.pods[NODE].gone_at is not None


def test_pod_without_a_registration_is_deleted_after_a_minute(agent: Agent, world: World) -> None:
    for second in range(5, SETTLING + 1, 5):
        assert not is_deleted(world)
        agent.look(world.now + second)
    assert is_deleted(world)


@pytest.mark.parametrize("service", ["slurm", "kubernetes"])
def test_pod_gets_a_whole_minute_after_an_outage(agent: Agent, world: World, service: str) -> None:
    for second in range(5, 55, 5):
        agent.look(world.now + second)
    if service == "slurm":
        world.slurm_silent_at = 1
    else:
        world.kubernetes_silent_at = 1
    with pytest.raises(PROBLEMS):
        agent.look(world.now + 55)
    world.slurm_silent_at = world.kubernetes_silent_at = None

    for second in range(65, 65 + SETTLING, 5):
        agent.look(world.now + second)
    assert not is_deleted(world)


def test_duration_of_a_pass_is_no_time_to_register(agent: Agent, world: World) -> None:
    """Requests of a pass wait for slurmctld. So a pass can last as long as an outage, in which
    slurmd cannot register."""
    agent.look(world.now + 90)
    assert not is_deleted(world)
