"""Which records are ghosts."""

import pytest

from agents.reconciler.actions import Forget
from agents.reconciler.ghosts import ghosts, is_wanted
from agents.reconciler.plan import plan
from tests.unit.agents.reconciler.things import NOW, node, observed, wanted


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
def test_a_node_is_wanted_while_its_nodeset_reaches_that_far(name: str, is_one: bool) -> None:
    assert is_wanted(name, {"cpu": 2, "big-mem": 1, "empty": 0}) is is_one


def test_only_what_is_gone_and_dynamic_and_free_and_unwanted_is_a_ghost() -> None:
    nodes = [
        node("cpu-0", "DOWN", "DYNAMIC_NORM"),
        node("old-2", "IDLE", "DRAIN", "NOT_RESPONDING", "DYNAMIC_NORM"),
        node("old-1", "DOWN", "DYNAMIC_NORM"),
        node("leaving-0", "MIXED", "DRAIN", "DYNAMIC_NORM"),
        node("busy-0", "MIXED", "NOT_RESPONDING", "DYNAMIC_NORM", alloc_cpus=1),
        node("static-0", "DOWN", "NOT_RESPONDING"),
    ]

    assert ghosts(nodes, {"cpu": 1}) == ["old-1", "old-2"]


def test_the_records_of_ghosts_are_deleted_whoever_drained_them() -> None:
    gone = node("cpu-7", "DOWN", "DRAIN", "DYNAMIC_NORM", reason="broken-fan")

    assert plan(observed(gone), wanted(), {}, NOW).actions == (Forget("cpu-7"),)
