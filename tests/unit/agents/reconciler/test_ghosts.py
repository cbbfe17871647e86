"""Ghosts are records of lost dynamic nodes that are no longer in the settings."""

import pytest

from agents.reconciler.actions import Forget
from agents.reconciler.ghosts import ghosts, is_wanted
from agents.reconciler.plan import plan
from tests.support.slurmnodes import NOW, node
from tests.unit.agents.reconciler.things import observed, wanted


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("cpu-0", True),
        ("cpu-1", True),
        ("cpu-2", False),
        ("gpu-0", False),
        ("big-mem-0", True),
        ("big-0", False),
        ("cpu", False),
        ("cpu-x", False),
        ("cpu--1", False),
        ("empty-0", False),
    ],
)
def test_wanted_nodes_have_numbers_below_the_size_of_their_nodeset(name: str, is_one: bool) -> None:
    assert is_wanted(name, {"cpu": 2, "big-mem": 1, "empty": 0}) is is_one


def test_only_lost_dynamic_idle_unwanted_nodes_are_ghosts() -> None:
    nodes = [
        node("cpu-0", "DOWN", "DYNAMIC_NORM"),
        node("old-2", "IDLE", "DRAIN", "NOT_RESPONDING", "DYNAMIC_NORM"),
        node("old-1", "DOWN", "DYNAMIC_NORM"),
        node("leaving-0", "MIXED", "DRAIN", "DYNAMIC_NORM"),
        node("busy-0", "MIXED", "NOT_RESPONDING", "DYNAMIC_NORM", alloc_cpus=1),
        node("static-0", "DOWN", "NOT_RESPONDING"),
    ]

    assert ghosts(nodes, {"cpu": 1}) == ["old-1", "old-2"]


def test_ghost_is_deleted_even_if_an_operator_drained_it() -> None:
    gone = node("cpu-7", "DOWN", "DRAIN", "DYNAMIC_NORM", reason="broken-fan")

    assert plan(observed(gone), wanted(), {}, NOW).actions == (Forget("cpu-7"),)
