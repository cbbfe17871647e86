"""Metrics of the reconciler: findings (problems of nodes) of the last pass, and steps of all
passes. The memory contains the progress of each repair."""

from collections import Counter
from dataclasses import replace

import pytest

from agents.reconciler.ladder import taken
from agents.reconciler.memory import Climb, Memory
from agents.reconciler.metrics import METRICS, Passes, of_nodes
from agents.reconciler.observed import Munged, Observed, Pod
from agents.reconciler.plan import Plan, plan
from agents.reconciler.wanted import Wanted
from agents.slurm import Node
from tests.support.metrics import Series, series
from tests.support.slurmnodes import NOW, drained, node
from tests.unit.agents.reconciler.things import (
    evidence,
    machine,
    observed,
    pod,
    update,
    wanted,
)

FAULTY = observed(drained("cpu-1", "slurmstack:check:gpu-xid: 79"))
KEY = ("cpu-1", "gpu-xid")
NONE_OUT: Series = {"slurmstack_nodes_wanted": 3, "slurmstack_nodes_without_munged": 0}
"""Series of a pass in which munged runs on every node. The number of nodes in service is left
out."""
LADDER = wanted(ladder=["recheck", "restart", "reboot", "replace"])


def made(seen: Observed, asked: Wanted = LADDER, memory: Memory | None = None) -> Plan:
    return plan(seen, asked, memory or {}, NOW)


def series_of(seen: Observed, asked: Wanted = LADDER, memory: Memory | None = None) -> Series:
    """Return the series of nodes after a pass that took no step."""
    done = made(seen, asked, memory)
    return series(of_nodes(done, taken(done.memory, asked)))


# --- Nodes ---------------------------------------------------------------------------------------


def test_healthy_nodes_have_no_series_of_their_own() -> None:
    assert series_of(observed()) == {**NONE_OUT, "slurmstack_nodes_in_service": 3}


def test_each_finding_of_an_unavailable_node_has_a_series() -> None:
    seen = observed(
        drained("cpu-0", "broken-fan"),
        drained("cpu-1", "slurmstack:check:gpu-xid: 79"),
        machine("machine-1", is_cordoned=True),
    )

    assert series_of(seen) == {
        **NONE_OUT,
        "slurmstack_nodes_in_service": 1,
        'slurmstack_findings{finding="cordoned"}': 1,
        'slurmstack_findings{finding="drained"}': 1,
        'slurmstack_findings{finding="gpu-xid"}': 1,
        'slurmstack_node_finding{finding="cordoned",node="cpu-1",step="none"}': 1,
        'slurmstack_node_finding{finding="drained",node="cpu-0",step="none"}': 1,
        'slurmstack_node_finding{finding="gpu-xid",node="cpu-1",step="none"}': 1,
    }


def test_repeated_finding_of_a_node_is_shown_once() -> None:
    asked = wanted(maintenance=["a", "b"])
    seen = observed(machine("machine-1", annotations={"a": "", "b": ""}))

    assert len(made(seen, asked).out) == 2
    found = series_of(seen, asked)
    assert found['slurmstack_findings{finding="maintenance"}'] == 1
    assert len(found) == len(NONE_OUT) + 3


def test_nodes_with_old_settings_are_counted_by_nodeset() -> None:
    seen = replace(observed(pod("cpu-1", revision="old")), updates={"cpu": update()})

    assert series_of(seen)['slurmstack_nodes_outdated{nodeset="cpu"}'] == 1


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
def test_nodes_with_a_failed_or_restarted_munged_are_counted(
    munged: Munged | None, nodes: int
) -> None:
    """Slurm may not have noticed the failure yet, so the node is still in service."""
    login = pod("login-0", is_worker=False, munged=Munged(is_ready=False, ended=NOW))
    found = series_of(observed(pod("cpu-1", munged=munged), login))

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
def test_nodes_in_service_without_recent_checks_are_counted(
    changed: list[Node | Pod], nodes: int
) -> None:
    others = [node(name, extra=evidence(NOW - 60)) for name in ("cpu-0", "cpu-2")]
    found = series_of(observed(*others, *changed), wanted(evidence=180))

    assert found["slurmstack_nodes_unchecked"] == nodes


def test_metric_of_unchecked_nodes_is_missing_if_checks_are_disabled() -> None:
    assert "slurmstack_nodes_unchecked" not in series_of(observed(), wanted(evidence=None))


def test_reason_may_contain_any_characters() -> None:
    found = series_of(observed(drained("cpu-1", 'slurmstack:check:"名前"\n\\: x')))

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
def test_last_tried_step_is_read_from_the_memory(climb: Climb, step: str) -> None:
    assert taken({KEY: climb}, LADDER).get(KEY, "none") == step


def test_skipped_useless_steps_are_not_shown_as_tried() -> None:
    assert taken({("cpu-1", "not-ready"): Climb(1, NOW, done=True)}, LADDER) == {
        ("cpu-1", "not-ready"): "replace"
    }
    assert taken({("cpu-1", "unscheduled"): Climb(1, NOW)}, LADDER) == {}


def test_finding_that_needs_a_person_has_step_person() -> None:
    at_its_end = {KEY: Climb(4, NOW, done=True)}
    assert 'slurmstack_node_finding{finding="gpu-xid",node="cpu-1",step="person"}' in series_of(
        FAULTY, memory=at_its_end
    )

    past_the_share = observed(*(machine(f"machine-{i}", is_cordoned=True) for i in range(2)))
    found = series_of(past_the_share, wanted(share=0.1))
    assert found['slurmstack_node_finding{finding="cordoned",node="cpu-0",step="none"}'] == 1
    assert found['slurmstack_node_finding{finding="cordoned",node="cpu-1",step="person"}'] == 1


# --- Passes --------------------------------------------------------------------------------------


def test_nodes_have_no_series_before_the_first_pass() -> None:
    assert series(Passes({}, lambda: NOW).collect()) == {
        'slurmstack_reconciler_passes_total{result="done"}': 0,
        'slurmstack_reconciler_passes_total{result="failed"}': 0,
    }


def test_failed_pass_removes_findings_and_keeps_counters() -> None:
    steps: Counter[tuple[str, str]] = Counter()
    now = NOW
    passes = Passes(steps, lambda: now)
    steps["cpu-1", "restart"] += 1
    passes.done(2.5, made(FAULTY), {KEY: "restart"})

    before = series(passes.collect())
    now += 60
    steps["cpu-1", "restart"] += 1
    assert series(passes.collect()) == before, "the scrape shows the last pass"
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


def test_counters_of_drains_and_lifts_start_at_0() -> None:
    """Prometheus would not count the first step if its series began with 1."""
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


def test_metrics_show_the_last_pass_while_the_next_runs() -> None:
    passes = Passes({}, lambda: NOW)
    passes.done(1, made(FAULTY), {})
    before = series(passes.collect())

    passes.begin(["cpu-0"])
    assert series(passes.collect()) == before


def silences(*states: tuple[str, ...] | None) -> float:
    """Return how often the metrics say that node cpu-1 stopped responding. Each argument is the
    node's state in one pass, or None if this pass fails."""
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
def test_each_time_that_a_node_stops_responding_is_counted(
    states: tuple[tuple[str, ...] | None, ...], times: int
) -> None:
    assert silences(*states) == times


def test_nodes_lost_before_the_first_pass_are_not_counted() -> None:
    """The previous reconciler has already counted these nodes."""
    assert silences(LOST, LOST) == 0


def test_removed_node_keeps_its_counters() -> None:
    passes = Passes({("cpu-9", "drain"): 2}, lambda: NOW)
    passes.begin(["cpu-0"])

    found = series(passes.collect())
    assert found['slurmstack_steps_total{node="cpu-9",step="drain"}'] == 2
    assert 'slurmstack_steps_total{node="cpu-9",step="lift"}' not in found


def test_catalogue_matches_the_exported_metrics() -> None:
    passes = Passes({("cpu-1", "drain"): 1}, lambda: NOW)
    passes.done(1, made(FAULTY, wanted(evidence=180)), {})

    shown = [(family.name, family.type) for family in passes.collect()]
    assert shown == [(metric.name.removesuffix("_total"), metric.type) for metric in METRICS]
