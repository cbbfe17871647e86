"""Random sequences of failures, repairs, drains by others, restarts and lost answers.

The fakes in world.py assert the rules for each step.
"""

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents import labels
from agents.drains import KUBERNETES
from agents.reconciler import carry
from agents.reconciler.__main__ import PROBLEMS, Reconciler
from agents.reconciler.carry import Place
from agents.reconciler.memory import loads
from tests.unit.agents.reconciler.things import wanted
from tests.unit.agents.reconciler.world import (
    Box,
    FakeApi,
    FakeSlurm,
    KilledError,
    World,
    is_marked,
)

SEQUENCES = 2000
BATCHES = 20
"""Number of tests into which the sequences are divided, so that a failed test names its seed
early."""
LADDER = ["recheck", "restart", "reboot", "replace"]
Event = Callable[[World, Box, random.Random], object]


def settings(nodes: int, share: float) -> str:
    asked = wanted(nodes, share=share, ladder=LADDER, replace_age=0)
    content = json.loads(asked.model_dump_json())
    return json.dumps(content)


def reconciler(world: World, path: Path) -> Reconciler:
    """Return a new reconciler. It knows only what the world stores."""
    place = Place("slurm", "memory", {"kind": "Deployment", "name": "reconciler"})
    return Reconciler(FakeSlurm(world), FakeApi(world), place, path, lambda: world.now)


def break_it(world: World, box: Box, _: random.Random) -> None:
    if not box.fault:
        box.fault, box.fault_since = True, world.now


def mend_it(_world: World, box: Box, _: random.Random) -> None:
    box.fault = False


def cordon(_world: World, box: Box, chance: random.Random) -> None:
    box.is_cordoned = chance.random() < 0.5


def press(_world: World, box: Box, chance: random.Random) -> None:
    box.has_pressure = chance.random() < 0.5


def look(world: World, path: Path, chance: random.Random) -> None:
    """Run a pass that may be interrupted at any request."""
    world.calls = 0
    cut = chance.randint(1, 40)
    match chance.randrange(6):
        case 0:
            world.killed_at = cut
        case 1:
            world.slurm_silent_at = chance.choice([1, cut])
        case 2:
            world.kubernetes_silent_at = chance.choice([1, cut])
    try:
        reconciler(world, path).look()
    except (KilledError, *PROBLEMS):
        pass
    finally:
        world.killed_at = world.slurm_silent_at = world.kubernetes_silent_at = None


EVENTS: list[Event] = [
    break_it,
    break_it,
    mend_it,
    mend_it,
    cordon,
    press,
    lambda world, box, _: world.run_checks(box),
    lambda world, box, _: world.foreign_drain(box),
    lambda world, box, _: world.foreign_resume(box),
    lambda world, box, _: world.begin_job(box),
    lambda world, box, _: world.begin_job_twice(box),
    lambda _world, box, __: setattr(box, "jobs", 0),
    lambda world, box, _: world.fall_silent(box),
    lambda _world, box, __: setattr(box, "is_silent", True),
    lambda world, box, _: world.come_back(box),
    lambda world, box, _: world.come_back(box),
    lambda world, box, _: world.time_out(box),
    lambda world, box, _: world.lose_pod(box),
    lambda world, _, __: world.kubelet_makes_pods(),
    lambda world, _, __: world.edit(),
]


def disturb(world: World, path: Path, chance: random.Random) -> None:
    boxes = list(world.boxes.values())
    for _ in range(15):
        for _ in range(chance.randint(0, 3)):
            chance.choice(EVENTS)(world, chance.choice(boxes), chance)
        world.now += chance.choice([1, 60, 60, 700])
        if chance.random() < 0.6:
            for box in boxes:
                world.run_checks(box)
        foreign = {name: box.reason for name, box in world.boxes.items() if box.is_foreign}
        look(world, path, chance)
        after = {name: box.reason for name, box in world.boxes.items() if box.is_foreign}
        assert after == foreign, "drains by others are unchanged"


def settle(world: World, path: Path) -> None:
    """Repair everything. Then run the checks and the reconciler once a minute, eight times."""
    world.repair_all()
    for _ in range(8):
        world.now += 60
        world.kubelet_makes_pods()
        for box in world.boxes.values():
            world.run_checks(box)
        reconciler(world, path).look()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_only_healthy_nodes_return_and_drains_by_others_stay(tmp_path: Path, batch: int) -> None:
    path = tmp_path / "wanted.json"
    for seed in range(batch, SEQUENCES, BATCHES):
        chance = random.Random(seed)
        nodes = chance.randint(1, 5)
        share = chance.choice([0.1, 0.5, 1.0])
        world = World(nodes, budget=max(1, int(share * nodes)))
        path.write_text(settings(nodes, share))

        disturb(world, path, chance)
        settle(world, path)

        for box in world.boxes.values():
            assert box.in_service or box.is_foreign, f"seed {seed}: {box}"
            assert not (is_marked(box) and not box.is_foreign), f"seed {seed}: {box}"
            assert box.revision == world.revision or box.is_foreign, f"seed {seed}: {box}"
            assert labels.REBOOT not in box.annotations, f"seed {seed}: {box}"


def test_sequences_cover_all_causes_and_steps(tmp_path: Path) -> None:
    path = tmp_path / "wanted.json"
    path.write_text(settings(4, 0.5))
    done: Counter[str] = Counter()
    reasons: set[str] = set()
    for seed in range(100):
        world = World(4, budget=2)
        disturb(world, path, random.Random(seed))
        done += world.done
        reasons |= {box.reason.partition(": ")[0] for box in world.boxes.values()}

    causes = {"not-ready", "cordoned", "disk-pressure"}
    assert {f"{KUBERNETES}{cause}" for cause in causes} | {"broken-fan"} <= reasons
    least = {
        "drain": 50,
        "lift": 20,
        "requeue": 3,
        "mark": 20,
        "restart": 20,
        "reboot": 3,
        "renew": 20,
    }
    assert {what: done[what] for what in least if done[what] < least[what]} == {}


def trouble(world: World) -> None:
    """Give each node a different kind of problem."""
    cordoned, broken, lost, absent = world.boxes.values()
    cordoned.is_cordoned = True
    world.now += 1
    broken.fault = True
    world.run_checks(broken)
    world.begin_job(lost)
    world.fall_silent(lost)
    absent.pod_ready = False


def rest_of_the_hour(path: Path, world: World, first: int = 0) -> Iterator[World]:
    """Yield the world after each minute of an hour, from minute `first` on."""
    for minute in range(first, 60):
        try:
            reconciler(world, path).look()
        except KilledError:
            world.killed_at = None
            reconciler(world, path).look()
        world.now += 60
        world.kubelet_makes_pods()
        if minute == 40:
            world.boxes["cpu-0"].is_cordoned = False
            world.boxes["cpu-1"].fault = False
        for box in world.boxes.values():
            world.run_checks(box)
        yield world


def state(world: World) -> object:
    """Return everything on which the rest of the hour depends, and the events so far."""
    return repr(world.boxes), world.memory, person_needed(world)


def person_needed(world: World) -> set[str]:
    return {line for line in world.messages if "a person must repair" in line}


def end(world: World) -> object:
    seen = [
        (box.is_drained, box.reason, box.is_down, box.jobs, is_marked(box), box.machine)
        for box in world.boxes.values()
    ]
    climbing = {key: one.rung for key, one in loads(world.memory).items() if one.gone is None}
    return seen, climbing, person_needed(world)


def test_kill_before_any_request_does_not_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Marks on machines contain the real time. Use a fixed time, so that equal states have equal
    # marks.
    monkeypatch.setattr(carry, "_stamp", lambda: "2026-01-01T00:00:00Z")
    path = tmp_path / "wanted.json"
    path.write_text(settings(4, 1.0))

    undisturbed = World(4, budget=4)
    trouble(undisturbed)
    starts, states = [copy.deepcopy(undisturbed)], []
    for world in rest_of_the_hour(path, undisturbed):
        starts.append(copy.deepcopy(world))
        states.append(state(world))

    least = {"drain": 2, "lift": 2, "requeue": 1, "mark": 2, "restart": 2, "reboot": 1}
    assert {what: undisturbed.done[what] for what in least} == least
    first_half = undisturbed.calls // 2
    for request in range(1, first_half):
        # Before the minute with this request, the world is the same as without a kill.
        minute = sum(start.calls < request for start in starts) - 1
        killed = copy.deepcopy(starts[minute])
        killed.killed_at = request
        hour = rest_of_the_hour(path, killed, minute)
        for world, expected in zip(hour, states[minute:], strict=True):
            # From an equal state, the rest of the hour is equal too.
            if world.killed_at is None and state(world) == expected:
                break
        else:
            assert end(killed) == end(undisturbed), f"killed before request {request}"
