"""Metrics of the bridge: values as Prometheus scrapes them."""

from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agents.bridge.actions import Bind, Link, Submit
from agents.bridge.carry import Carried
from agents.bridge.metrics import METRICS, Plans
from agents.bridge.observed import Job, Observed, Pod
from tests.unit.agents.bridge import things

NOW = 1000.0
WAITING = things.unplaced("one")
RUNNING = replace(things.unplaced("two"), machine="m-0", job=7)
JOB = Job(7, "g", 1, frozenset({"RUNNING"}), started=NOW - 30)


def observed(*pods: Pod, jobs: tuple[Job, ...] = ()) -> Observed:
    return Observed(pods, {job.id: job for job in jobs}, {})


def scrape(plans: Plans) -> dict[str, Any]:
    """Return the value of each series, by its name and the values of its labels."""
    registry = CollectorRegistry()
    registry.register(plans)
    text = generate_latest(registry).decode()
    return {
        " ".join((sample.name.removeprefix("slurmstack_bridge_"), *sample.labels.values())): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def after(seen: Observed, carried: Carried | None = None, *refused: str) -> Any:
    plans = Plans(lambda: True, lambda: NOW)
    plans.done(0.25, seen, carried or Carried(), refused)
    return scrape(plans)


def test_exported_metrics_match_the_catalogue() -> None:
    plans = Plans(lambda: True, lambda: NOW)
    plans.done(0.25, observed(RUNNING), Carried(), set())
    shown = {(family.name, family.type) for family in plans.collect()}
    assert shown == {(metric.name.removesuffix("_total"), metric.type) for metric in METRICS}


def test_pod_that_does_not_act_shows_nothing_else() -> None:
    assert scrape(Plans(lambda: False, lambda: NOW)) == {"acts": 0}


def test_pods_are_counted_by_namespace_and_state() -> None:
    pods = [
        *(WAITING, RUNNING),
        replace(RUNNING, uid="3", stops_by=NOW + 5),
        replace(RUNNING, uid="4", has_stopped=True),
        replace(WAITING, uid="5", namespace="web", problem="no rule"),
        replace(WAITING, uid="6", namespace="web", gang="other"),
    ]
    found = after(observed(*pods), None, "other")
    assert {name: value for name, value in found.items() if name.startswith("pods")} == {
        "pods lab ending": 1,
        "pods lab running": 1,
        "pods lab waiting": 1,
        "pods web refused": 2,
    }


def test_pods_of_a_failed_plan_are_unknown() -> None:
    plans = Plans(lambda: True, lambda: NOW)
    plans.done(0.25, observed(RUNNING), Carried(), set())
    plans.failed()
    found = scrape(plans)
    assert not [name for name in found if name.startswith("pods")]
    assert (found["plans_total done"], found["plans_total failed"]) == (1, 1)
    assert found["last_plan_timestamp_seconds"] == NOW


def test_actions_are_counted_from_zero() -> None:
    carried = Carried(done=(Link(WAITING, 7), Link(RUNNING, 7)), failed=((Bind(7, ()), "refused"),))
    found = after(observed(RUNNING), carried)
    assert found["actions_total link done"] == 2
    assert found["actions_total bind failed"] == 1
    assert found[f"actions_total {Submit.__name__.lower()} done"] == 0


def test_delays_are_those_of_the_slowest_pod() -> None:
    late = [replace(RUNNING, uid=str(n), stops_by=NOW - n) for n in (5, 90)]
    waiting = replace(WAITING, job=7)
    found = after(observed(waiting, *late, jobs=(JOB,)), Carried((Bind(7, ((waiting, "m-0"),)),)))
    assert found["stop_delay_seconds"] == 90
    assert found["start_delay_seconds"] == 30
    assert found["bind_delay_seconds_total"] == 30


def test_delays_are_zero_while_nothing_is_late() -> None:
    ending = replace(RUNNING, stops_by=NOW + 20)
    found = after(observed(WAITING, ending, jobs=(JOB,)))
    assert (found["stop_delay_seconds"], found["start_delay_seconds"]) == (0, 0)
