"""Random histories of pods, gangs, jobs, cancellations, failures, and kills of the bridge."""

import random
from functools import partial

import pytest

from tests.unit.agents.bridge.world import World

HISTORIES = 2000
BATCHES = 20
"""Number of tests into which the histories are divided."""


def disturb(world: World, chance: random.Random) -> None:
    match chance.randrange(4):
        case 0:
            size = chance.choice([1, 1, 1, 2, 3])
            world.create(size, chance.randint(1, 3), chance.choice([2, 20]), chance.choice([0, 15]))
        case 1:
            world.submit(chance.randint(1, 2), chance.randint(1, 4), chance.choice([3, 25]))
        case 2:
            fail(world, chance)
        case 3:
            world.killed_after = chance.randint(0, 4)


def fail(world: World, chance: random.Random) -> None:
    node = chance.choice(list(world.nodes))
    match chance.randrange(6):
        case 5:
            world.restart(node)
        case 0:
            for pod in chance.sample(list(world.pods.values()), min(1, len(world.pods))):
                world.delete(pod)
        case 1:
            for job in chance.sample(list(world.jobs.values()), min(1, len(world.jobs))):
                world.cancel(job)
        case 2:
            world.fail(node)
        case 3:
            world.recover()
        case 4:
            world.foreign[node] = chance.choice([0, world.nodes[node]])


def interrupt(world: World, chance: random.Random) -> None:
    """Change the world between a plan of the bridge and its actions."""
    if chance.randrange(4) == 0:
        fail(world, chance)
        world.step()


def live(world: World) -> list[object]:
    pods = [pod for pod in world.pods.values() if not pod.outcome or pod.is_guarded]
    jobs = [job for job in world.jobs.values() if job.state & {"PENDING", "RUNNING", "COMPLETING"}]
    return [*pods, *jobs]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_nothing_is_over_committed_and_everything_ends(batch: int) -> None:
    for seed in range(batch, HISTORIES, BATCHES):
        chance = random.Random(seed)
        nodes = {f"n-{i}": chance.randint(3, 6) for i in range(chance.randint(1, 4))}
        world = World(nodes, chance)
        world.meanwhile = partial(interrupt, world, chance)
        for _ in range(60):
            if chance.randrange(2):
                disturb(world, chance)
            if chance.randrange(4):
                world.bridge()
            world.step()
        world.meanwhile = lambda: None
        world.foreign = dict.fromkeys(nodes, 0)
        for step in range(600):
            if step % 100 == 0:
                world.forget_impossible()
            world.bridge()
            world.recover()
            world.step()
            if not live(world):
                break

        assert not live(world), f"seed {seed}: {live(world)}"
