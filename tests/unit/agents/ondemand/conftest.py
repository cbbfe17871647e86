"""A nodeset on demand whose only node is starting, and its agent."""

from pathlib import Path

import pytest

from agents.ondemand.__main__ import Agent
from tests.unit.agents.ondemand.world import NODE, World, agent_of


@pytest.fixture
def world() -> World:
    made = World({"gpu": 1})
    made.set_power(made.boxes[NODE], "POWER_UP")
    made.pass_time(5)
    return made


@pytest.fixture
def agent(world: World, tmp_path: Path) -> Agent:
    return agent_of(world, tmp_path, {"gpu": 1})
