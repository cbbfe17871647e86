"""Random sequences of jobs, failures, drains by others, kills of the agent and silent services.

The fakes in world.py assert for each request that the agent keeps its rules.
"""

import functools
import random
from pathlib import Path

import pytest

from agents.ondemand.__main__ import PROBLEMS, Agent
from tests.unit.agents.ondemand.world import TICK, Box, Job, KilledError, World, new_agent, settings

SEQUENCES = 2000
BATCHES = 20
"""Number of tests into which the sequences are divided, so that a failed test names its seed
early."""
IDLE = 120


def look(world: World, agent: Agent, path: Path, chance: random.Random) -> Agent:
    """Make a pass that may be interrupted at any request. The world may change during the pass.

    Return the agent for the next pass: a new agent if this agent was killed.
    """
    world.calls = 0
    cut = chance.randint(1, 12)
    if chance.randrange(3) == 0:
        world.changes_at = chance.randint(2, 12)
    match chance.randrange(8):
        case 0:
            world.killed_at = cut
        case 1:
            world.slurm_silent_at = chance.choice([1, cut])
        case 2:
            world.kubernetes_silent_at = chance.choice([1, cut])
    try:
        agent.look(world.now)
    except KilledError:
        agent = new_agent(world, path)
    except PROBLEMS:
        pass
    finally:
        world.killed_at = world.slurm_silent_at = world.kubernetes_silent_at = None
        world.changes_at = None
    return agent


def disturb(world: World, chance: random.Random) -> None:
    disturb_once(world, chance.choice(list(world.boxes.values())), chance)


def change(world: World, chance: random.Random) -> None:
    """Change the world during a pass."""
    disturb(world, chance)
    world.pass_time(TICK)


def disturb_once(world: World, box: Box, chance: random.Random) -> None:
    match chance.randrange(14):
        case 0 | 1 | 2:
            nodeset = chance.choice(world.nodesets)
            size = chance.randint(1, world.size(nodeset))
            world.submit(nodeset, size, chance.choice([5, 60, 400]))
        case 3:
            chance.choice([world.foreign_drain, world.foreign_drain, world.foreign_down])(box)
        case 4 | 5:
            world.foreign_resume(box)
        case 6 | 7 | 8:
            disturb_pod(world, box, chance)
        case 9 | 10 | 11 | 12:
            disturb_kubernetes(world, chance)
        case 13:
            world.set_power(box, chance.choice(["POWER_UP", "POWER_DOWN"]))


def disturb_pod(world: World, box: Box, chance: random.Random) -> None:
    match chance.randrange(4):
        case 0:
            world.evict(box)
        case 1:
            world.lose_pod(box)
        case 2:
            world.end_pod(box)
        case 3:
            world.lose_kubelet(box)


def disturb_kubernetes(world: World, chance: random.Random) -> None:
    match chance.randrange(4):
        case 0:
            world.room = chance.choice([0, 1, 100, 100])
        case 1:
            world.image = chance.choice(["good", "good", "bad"])
        case 2:
            world.quota = chance.choice([1, 100, 100])
        case 3:
            world.rejects = chance.choice([True, False, False])


def unfinished(world: World) -> list[Job | Box]:
    """Return jobs that have not ended, and nodes that are not in service."""
    jobs = [job for job in world.jobs.values() if not job.is_done]
    return [*jobs, *(box for box in world.boxes.values() if box.is_out)]


def settle(world: World, agent: Agent, warm: int) -> None:
    """Repair everything, and let the agent work for at most two hours."""
    world.room = world.quota = 100
    world.image, world.rejects = "good", False
    for box in world.boxes.values():
        world.foreign_resume(box)
    for pod in world.pods.values():
        pod.is_stuck = False
    for _ in range(0, 7200, 15):
        world.pass_time(15)
        made, _ = agent.look(world.now)
        if made.is_settled and len(world.awake()) == warm and not unfinished(world):
            break


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_job_ends_and_idle_nodes_sleep(tmp_path: Path, batch: int) -> None:
    path = tmp_path / "wanted.json"
    for seed in range(batch, SEQUENCES, BATCHES):
        chance = random.Random(seed)
        sizes = {"gpu": chance.randint(1, 5)}
        if chance.randrange(3) == 0:
            sizes["cpu"] = chance.randint(1, 3)
        warm = chance.choice([0, 0, 1])
        # The ceiling of costs lets the largest job of one nodeset run beside the warm nodes of the
        # other nodeset.
        ceiling = chance.choice([None, None, float(max(sizes.values()) + warm)])
        world = World(sizes)
        world.ceiling = ceiling or 1e9
        world.change = functools.partial(change, world, chance)
        path.write_text(settings(sizes, warm, ceiling, IDLE))
        agent = new_agent(world, path)

        for _ in range(8):
            for _ in range(chance.randint(0, 3)):
                disturb(world, chance)
            for _ in range(chance.randint(1, 4)):
                world.pass_time(chance.choice([TICK, TICK, 30, 130]))
                agent = look(world, agent, path, chance)
        settle(world, agent, warm * len(sizes))

        assert not unfinished(world), f"seed {seed}: {unfinished(world)}"
        assert world.awake() == set(world.pods), f"seed {seed}: {world.boxes} {world.pods}"
        assert len(world.awake()) == warm * len(sizes), f"seed {seed}: {world.boxes}"
