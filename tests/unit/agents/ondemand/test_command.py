"""The command `python3 -m agents.ondemand`: when it makes a pass, what it prints, and how it
exits. In a pass, the agent reads the state of all nodes on demand, and starts or stops nodes."""

import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.kubernetes import KubernetesError
from agents.ondemand import __main__ as command
from agents.ondemand.__main__ import Agent, main
from agents.ondemand.carry import Carried
from agents.ondemand.plan import Plan
from tests.support.ports import free_port
from tests.unit.agents.ondemand.world import World, agent_of

Look = tuple[Plan, Carried]


@pytest.fixture
def world() -> World:
    return World({"gpu": 2})


@pytest.fixture
def agent(world: World, tmp_path: Path) -> Agent:
    return agent_of(world, tmp_path, {"gpu": 2})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Port of the agent. After the test, the previous handler of SIGTERM is restored."""
    number, before = free_port(), signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("PORT", str(number))
    yield number
    signal.signal(signal.SIGTERM, before)


def counted(agent: Agent, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Before each pass of the agent, call `act` with the number of the pass."""
    look, number = agent.look, 0

    def counting(now: float) -> Look:
        nonlocal number
        number += 1
        act(number)
        return look(now)

    monkeypatch.setattr(agent, "look", counting)


def call(port: int) -> None:
    """Call the agent as slurmctld's programs do."""
    socket.create_connection(("127.0.0.1", port)).close()


def test_call_from_slurmctld_starts_a_pass_at_once(
    agent: Agent, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "QUIET", 3600.0)
    monkeypatch.setattr(command, "BUSY", 0.01)

    def act(number: int) -> None:
        if number == 1:
            threading.Timer(0.2, call, (port,)).start()
        else:
            signal.raise_signal(signal.SIGTERM)

    counted(agent, monkeypatch, act)

    assert main([], agent) == 0


def test_many_calls_start_only_one_pass_in_each_interval(
    agent: Agent, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "BUSY", 0.25)
    looks: list[float] = []

    def call_again_and_again() -> None:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            call(port)
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    def act(number: int) -> None:
        looks.append(time.monotonic())
        if number == 1:
            threading.Thread(target=call_again_and_again).start()

    counted(agent, monkeypatch, act)

    assert main([], agent) == 0
    assert len(looks) >= 2
    # There is one pass more than intervals. Allow another one, because a busy machine may delay a
    # single pass.
    assert len(looks) <= (looks[-1] - looks[0]) / command.BUSY + 2


def test_pause_after_a_pass_is_as_long_as_the_pass(
    agent: Agent, world: World, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "BUSY", 0.01)
    world.boxes["gpu-1"].flags = {"POWERING_UP"}
    begun: list[float] = []

    def act(number: int) -> None:
        begun.append(time.monotonic())
        if number == 3:
            signal.raise_signal(signal.SIGTERM)
        time.sleep(0.3)

    counted(agent, monkeypatch, act)

    assert main([], agent) == 0
    assert all(later - earlier >= 0.6 for earlier, later in itertools.pairwise(begun))


def test_pause_after_a_failed_pass_is_at_most_five_seconds() -> None:
    assert [command.pause(took) for took in (0.2, 0.7, 3.0, 90.0)] == [0.8, 0.7, 3.0, 5.0]


def test_failed_pass_is_reported_and_repeated(
    agent: Agent, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "QUIET", 0.01)
    monkeypatch.setattr(command, "BUSY", 0.01)

    def act(number: int) -> None:
        if number == 1:
            raise KubernetesError("GET /x", "silent")
        signal.raise_signal(signal.SIGTERM)

    counted(agent, monkeypatch, act)

    assert main([], agent) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "the check of the on-demand nodes did not finish: " in line
    assert "the next check tries again" in line


def test_log_shows_only_what_was_done(
    agent: Agent,
    world: World,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.boxes["gpu-1"].flags = {"POWERING_UP"}
    world.refusal = "volumes must be the same as in the PodTemplate of the nodeset"
    counted(agent, monkeypatch, lambda _: signal.raise_signal(signal.SIGTERM))

    assert main([], agent) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" msg=")[2] for line in lines] == [
        (
            '"done: set node gpu-1 to DOWN, because the node did not start: '
            'slurmstack:start:quota: volumes must be the same as in the PodTemplate of the nodeset"'
        ),
        (
            "\"cannot carry out 'create the pod of node gpu-1': Kubernetes: "
            "volumes must be the same as in the PodTemplate of the nodeset; "
            'the agent tries again"'
        ),
    ]


def test_dry_run_without_anything_to_do_exits_with_0(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--dry-run"], agent) == 0
    assert capsys.readouterr().out == "on-demand nodes: 0 awake, 0 starting or stopping, 2 asleep\n"


def test_dry_run_shows_the_actions_and_changes_nothing(
    agent: Agent, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.boxes["gpu-1"].flags = {"POWERING_UP"}

    assert main(["--dry-run"], agent) == 1
    assert "planned: create the pod of node gpu-1" in capsys.readouterr().out
    assert world.pods == {}


@pytest.mark.parametrize("service", ["slurm", "kubernetes"])
def test_dry_run_exits_with_2_if_a_service_is_unavailable(
    service: str, agent: Agent, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    if service == "slurm":
        world.slurm_silent_at = 1
    else:
        world.kubernetes_silent_at = 1

    assert main(["--dry-run"], agent) == 2
    assert "the check of the on-demand nodes did not finish" in capsys.readouterr().err
