"""What is scraped of the reconciler: of nodes what the last pass found, and what all have done."""

from collections import Counter

import pytest

from agents.reconciler.ladder import taken
from agents.reconciler.memory import Climb, Memory
from agents.reconciler.metrics import METRICS, Passes, of_nodes
from agents.reconciler.observed import Munged, Observed, Pod
from agents.reconciler.plan import Plan, plan
from agents.reconciler.wanted import Wanted
from agents.slurm import Node
from tests.support.metrics import Series, series
from tests.unit.agents.reconciler.things import (
    NOW,
    drained,
    evidence,
    machine,
    node,
    observed,
    pod,
    wanted,
)

FAULTY = observed(drained("cpu-1", "slurmstack:check:gpu-xid: 79"))
KEY = ("cpu-1", "gpu-xid")
NONE_OUT: Series = {"slurmstack_nodes_wanted": 3, "slurmstack_nodes_without_munged": 0}
"""What there is of nodes in every pass, beside how many are in service."""
LADDER = wanted(ladder=["recheck", "restart", "reboot", "replace"])


def made(seen: Observed, asked: Wanted = LADDER, memory: Memory | None = None) -> Plan:
    return plan(seen, asked, memory or {}, NOW)


def of(seen: Observed, asked: Wanted = LADDER, memory: Memory | None = None) -> Series:
    """Series of nodes, after a pass in which nothing was carried out."""
    done = made(seen, asked, memory)
    return series(of_nodes(done, taken(done.memory, asked)))


# --- Of nodes ------------------------------------------------------------------------------------


def test_nodes_that_are_well_have_no_series_of_their_own() -> None:
    assert of(observed()) == {**NONE_OUT, "slurmstack_nodes_in_service": 3}


def test_a_node_that_is_out_shows_with_each_of_its_findings() -> None:
    seen = observed(
        drained("cpu-0", "broken-fan"),
        drained("cpu-1", "slurmstack:check:gpu-xid: 79"),
        machine("machine-1", is_cordoned=True),
    )

    assert of(seen) == {
        **NONE_OUT,
        "slurmstack_nodes_in_service": 1,
        'slurmstack_findings{finding="cordoned"}': 1,
        'slurmstack_findings{finding="drained"}': 1,
        'slurmstack_findings{finding="gpu-xid"}': 1,
        'slurmstack_node_finding{finding="cordoned",node="cpu-1",step="none"}': 1,
        'slurmstack_node_finding{finding="drained",node="cpu-0",step="none"}': 1,
        'slurmstack_node_finding{finding="gpu-xid",node="cpu-1",step="none"}': 1,
    }


def test_what_is_found_twice_of_a_node_counts_once() -> None:
    asked = wanted(maintenance=["a", "b"])
    seen = observed(machine("machine-1", annotations={"a": "", "b": ""}))

    assert len(made(seen, asked).out) == 2
    found = of(seen, asked)
    assert found['slurmstack_findings{finding="maintenance"}'] == 1
    assert len(found) == len(NONE_OUT) + 3


@pytest.mark.parametrize(
    ("munged", "nodes"),
    [
        (Munged(is_ready=False, ended=NOW - 10_000), 1),
        (Munged(is_ready=True, ended=NOW - 10), 1),
        (Munged(is_ready=True, ended=NOW - 299), 1),
        (Munged(is_ready=True, ended=NOW - 300), 0),
        (None, 0),
    ],
)
def test_nodes_whose_munged_ends_or_hangs_are_counted(munged: Munged | None, nodes: int) -> None:
    """Slurm may not have heard of it yet: the node is in service."""
    login = pod("login-0", is_worker=False, munged=Munged(is_ready=False, ended=NOW))
    found = of(observed(pod("cpu-1", munged=munged), login))

    assert found["slurmstack_nodes_without_munged"] == nodes
    assert found["slurmstack_nodes_in_service"] == 3


@pytest.mark.parametrize(
    ("changed", "nodes"),
    [
        ([node("cpu-1", extra="")], 1),
        ([node("cpu-1", extra="the site's own")], 1),
        ([node("cpu-1", extra=evidence(NOW - 181))], 1),
        ([node("cpu-1", extra=evidence(NOW - 180, ["disk"]))], 0),
        ([drained("cpu-1", "mine")], 0),
        ([node("cpu-1", "IDLE", "NOT_RESPONDING")], 0),
        ([node("cpu-1", extra=""), pod("cpu-1", ready_since=NOW - 180)], 0),
        ([node("cpu-1", extra=""), pod("cpu-1", ready_since=NOW - 181)], 1),
    ],
)
def test_nodes_in_service_that_nobody_checks_are_counted(
    changed: list[Node | Pod], nodes: int
) -> None:
    others = [node(name, extra=evidence(NOW - 60)) for name in ("cpu-0", "cpu-2")]
    found = of(observed(*others, *changed), wanted(evidence=180))

    assert found["slurmstack_nodes_unchecked"] == nodes


def test_where_no_checks_are_wanted_none_are_missed() -> None:
    assert "slurmstack_nodes_unchecked" not in of(observed(), wanted(evidence=None))


def test_a_reason_of_any_letters_is_a_label() -> None:
    found = of(observed(drained("cpu-1", 'slurmstack:check:"名前"\n\\: x')))

    assert found['slurmstack_findings{finding=""名前"\n\\"}'] == 1


@pytest.mark.parametrize(
    ("climb", "step"),
    [
        (Climb(0, NOW, done=True), "none"),
        (Climb(1, NOW), "none"),
        (Climb(1, NOW, done=True, target="u"), "restart"),
        (Climb(2, NOW), "restart"),
        (Climb(2, NOW, done=True, target="b"), "reboot"),
        (Climb(3, NOW, done=True, target="m"), "replace"),
        (Climb(4, NOW, done=True), "replace"),
    ],
)
def test_the_step_that_was_tried_last_is_known_from_what_is_remembered(
    climb: Climb, step: str
) -> None:
    assert taken({KEY: climb}, LADDER).get(KEY, "none") == step


def test_steps_that_are_in_vain_for_a_cause_are_not_among_those_that_were_tried() -> None:
    assert taken({("cpu-1", "not-ready"): Climb(1, NOW, done=True)}, LADDER) == {
        ("cpu-1", "not-ready"): "replace"
    }
    assert taken({("cpu-1", "unscheduled"): Climb(1, NOW)}, LADDER) == {}


def test_a_finding_that_needs_a_person_says_so_whatever_was_tried() -> None:
    at_its_end = {KEY: Climb(4, NOW, done=True)}
    assert 'slurmstack_node_finding{finding="gpu-xid",node="cpu-1",step="person"}' in of(
        FAULTY, memory=at_its_end
    )

    past_the_share = observed(*(machine(f"machine-{i}", is_cordoned=True) for i in range(2)))
    found = of(past_the_share, wanted(share=0.1))
    assert found['slurmstack_node_finding{finding="cordoned",node="cpu-0",step="none"}'] == 1
    assert found['slurmstack_node_finding{finding="cordoned",node="cpu-1",step="person"}'] == 1


# --- Of passes -----------------------------------------------------------------------------------


def test_before_the_first_pass_nothing_is_known_of_nodes() -> None:
    assert series(Passes({}, lambda: NOW).collect()) == {
        'slurmstack_reconciler_passes_total{result="done"}': 0,
        'slurmstack_reconciler_passes_total{result="failed"}': 0,
    }


def test_a_pass_that_failed_takes_what_was_known_of_nodes_and_leaves_what_was_counted() -> None:
    steps: Counter[tuple[str, str]] = Counter()
    now = NOW
    passes = Passes(steps, lambda: now)
    steps["cpu-1", "restart"] += 1
    passes.done(2.5, made(FAULTY), {KEY: "restart"})

    before = series(passes.collect())
    now += 60
    steps["cpu-1", "restart"] += 1
    assert series(passes.collect()) == before, "it is of the last pass"
    passes.failed(40)

    assert before['slurmstack_node_finding{finding="gpu-xid",node="cpu-1",step="restart"}'] == 1
    assert before["slurmstack_reconciler_pass_duration_seconds"] == 2.5
    assert series(passes.collect()) == {
        'slurmstack_reconciler_passes_total{result="done"}': 1,
        'slurmstack_reconciler_passes_total{result="failed"}': 1,
        "slurmstack_reconciler_last_pass_timestamp_seconds": NOW,
        "slurmstack_reconciler_pass_duration_seconds": 40,
        'slurmstack_steps_total{node="cpu-1",step="restart"}': 2,
    }


def test_drains_and_lifts_of_all_wanted_nodes_are_counted_from_nought() -> None:
    """Prometheus sees no increase in a series that begins with 1."""
    steps: Counter[tuple[str, str]] = Counter()
    passes = Passes(steps, lambda: NOW)
    passes.begin(["cpu-0", "cpu-1"])

    none = {
        f'slurmstack_steps_total{{node="{node}",step="{step}"}}': 0
        for node in ("cpu-0", "cpu-1")
        for step in ("drain", "lift")
    }
    before = series(passes.collect())
    assert none.items() <= before.items()
    assert before['slurmstack_node_silences_total{node="cpu-1"}'] == 0

    steps["cpu-1", "drain"] += 1
    passes.begin(["cpu-0", "cpu-1"])
    passes.failed(1)
    counted = {'slurmstack_steps_total{node="cpu-1",step="drain"}': 1}
    assert {**none, **counted}.items() <= series(passes.collect()).items()


def test_while_a_pass_goes_on_the_last_one_is_shown() -> None:
    passes = Passes({}, lambda: NOW)
    passes.done(1, made(FAULTY), {})
    before = series(passes.collect())

    passes.begin(["cpu-0"])
    assert series(passes.collect()) == before


def silences(*states: tuple[str, ...] | None) -> float:
    """How often a node fell silent that was in these states, pass by pass; None for no pass."""
    passes = Passes({}, lambda: NOW)
    for state in states:
        passes.begin(["cpu-0", "cpu-1", "cpu-2"])
        if state is None:
            passes.failed(1)
        else:
            passes.done(1, made(observed(node("cpu-1", *state))), {})
    return series(passes.collect())['slurmstack_node_silences_total{node="cpu-1"}']


UP, LOST = ("IDLE",), ("IDLE", "NOT_RESPONDING")


@pytest.mark.parametrize(
    ("states", "times"),
    [
        ((UP, UP), 0),
        ((UP, LOST, LOST, ("DOWN", "NOT_RESPONDING"), ("DOWN",)), 1),
        ((UP, LOST, UP, ("DOWN",), UP, LOST), 3),
        ((UP, None, LOST), 1),
        ((UP, LOST, None, LOST), 1),
        ((UP, ("IDLE", "POWERING_UP", "NOT_RESPONDING"), ("IDLE", "POWERED_DOWN")), 0),
        ((UP, ("IDLE", "DRAIN")), 0),
    ],
)
def test_a_node_that_slurmctld_loses_again_and_again_is_counted(
    states: tuple[tuple[str, ...] | None, ...], times: int
) -> None:
    assert silences(*states) == times


def test_nodes_that_were_silent_before_the_first_pass_are_not_counted() -> None:
    """Who was there before has counted them."""
    assert silences(LOST, LOST) == 0


def test_a_node_that_is_wanted_no_more_keeps_what_was_counted() -> None:
    passes = Passes({("cpu-9", "drain"): 2}, lambda: NOW)
    passes.begin(["cpu-0"])

    found = series(passes.collect())
    assert found['slurmstack_steps_total{node="cpu-9",step="drain"}'] == 2
    assert 'slurmstack_steps_total{node="cpu-9",step="lift"}' not in found


def test_the_catalogue_is_what_is_shown() -> None:
    passes = Passes({("cpu-1", "drain"): 1}, lambda: NOW)
    passes.done(1, made(FAULTY, wanted(evidence=180)), {})

    shown = [(family.name, family.type) for family in passes.collect()]
    assert shown == [(metric.name.removesuffix("_total"), metric.type) for metric in METRICS]
