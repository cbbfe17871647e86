"""A PodDisruptionBudget protects exactly the pods of nodes with jobs from evictions."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import httpx

from agents import labels
from agents.reconciler.__main__ import Reconciler
from agents.reconciler.carry import Place
from agents.reconciler.disruption import Budget, busy, spec
from agents.reconciler.observed import Observed
from tests.support.kubeanswers import Answers, api
from tests.support.slurmnodes import NOW, drained, node
from tests.unit.agents.reconciler.things import observed, pod, wanted
from tests.unit.agents.reconciler.world import FakeApi, FakeSlurm, World

PATH = "/apis/policy/v1/namespaces/slurm/poddisruptionbudgets/busy-nodes"
BUSY = node("cpu-1", "ALLOCATED", alloc_cpus=2)


def asked(
    kept: dict[str, Any], seen: Observed, refused: Collection[str] = ()
) -> list[httpx.Request]:
    """Return the requests that the reconciler sends for these nodes. `kept` is the spec of the
    PodDisruptionBudget before the requests."""
    answers = Answers(**{"busy-nodes": {"spec": kept}})
    Budget(api(answers), "slurm", "busy-nodes").keep(seen, refused)
    assert {request.url.path for request in answers.asked} == {PATH}
    return answers.asked


def test_nodes_with_jobs_are_protected() -> None:
    completing = node("cpu-2", "IDLE", "COMPLETING")

    assert busy(observed()) == []
    assert busy(observed(BUSY, completing)) == ["cpu-1", "cpu-2"]


def test_nodes_with_suspended_jobs_are_protected() -> None:
    assert busy(observed(node("cpu-1", alloc_memory=224))) == ["cpu-1"]


def test_drained_node_is_protected_until_its_jobs_end() -> None:
    assert busy(observed(drained("cpu-1", "mine", alloc_cpus=1))) == ["cpu-1"]
    assert busy(observed(drained("cpu-1", "mine"))) == []


def test_pods_that_terminate_or_are_missing_are_not_in_the_budget() -> None:
    assert busy(observed(BUSY, pod("cpu-1", leaves=NOW + 100.0))) == []
    assert busy(observed(BUSY, without="pod cpu-1")) == []


def test_budget_allows_no_eviction_of_its_pods() -> None:
    found = spec(("cpu-1", "cpu-2"))

    assert found["minAvailable"] == 2
    assert found["selector"]["matchExpressions"] == [
        {"key": labels.POD, "operator": "In", "values": ["cpu-1", "cpu-2"]}
    ]
    assert found["selector"]["matchLabels"] == {labels.COMPONENT: labels.WORKER}


def test_budget_without_jobs_selects_no_pod() -> None:
    """An empty selector would select all pods, and a missing selector selects none."""
    assert spec(()) == {"minAvailable": 0, "selector": None}


def test_budget_is_written_only_if_it_changes() -> None:
    _, written = asked({}, observed(BUSY))
    assert written.method == "PATCH"
    assert json.loads(written.content) == {"spec": spec(["cpu-1"])}

    (read,) = asked(spec(["cpu-1"]), observed(BUSY))
    assert read.method == "GET"


def test_budget_is_emptied_when_the_jobs_have_ended() -> None:
    _, written = asked(spec(["cpu-1"]), observed())

    assert json.loads(written.content) == {"spec": spec([])}


def test_node_that_the_drain_limit_keeps_in_service_is_not_protected() -> None:
    """Such a node should be drained, but too many nodes already are. As it is not drained, new jobs
    can start on it at any time. If it were protected, an eviction might never succeed."""
    (read,) = asked(spec([]), observed(BUSY), refused=["cpu-1"])
    assert read.method == "GET"


def look(
    folder: Path, world: World, *, dry_run: bool = False, share: float = 1.0
) -> tuple[str, ...]:
    file = folder / "wanted.json"
    file.write_text(wanted(2, share=share).model_dump_json())
    place = Place("slurm", "memory", {"kind": "Deployment", "name": "reconciler"}, "", "busy-nodes")
    reconciler = Reconciler(FakeSlurm(world), FakeApi(world), place, file, lambda: world.now)
    return reconciler.look(dry_run=dry_run).notes


def test_pass_protects_nodes_with_jobs(tmp_path: Path) -> None:
    world = World(2, budget=2)
    world.boxes["cpu-1"].jobs = 1

    look(tmp_path, world, dry_run=True)
    assert world.protected == {}

    assert look(tmp_path, world) == ()
    assert world.protected == spec(["cpu-1"])


def test_failed_write_of_the_budget_is_reported_and_repairs_continue(tmp_path: Path) -> None:
    world = World(2, budget=2)
    world.boxes["cpu-0"].is_cordoned = True
    world.boxes["cpu-1"].jobs = 1
    world.refuses_budget = True

    (note,) = look(tmp_path, world)

    assert note.startswith("nodes with jobs are not protected from evictions, because ")
    assert world.boxes["cpu-0"].is_drained


def test_only_drained_nodes_among_cordoned_nodes_are_protected(tmp_path: Path) -> None:
    world = World(2, budget=2)
    for box in world.boxes.values():
        box.is_cordoned, box.jobs = True, 1

    look(tmp_path, world, share=0.5)

    (drained_one,) = (name for name, box in world.boxes.items() if box.is_drained)
    assert world.protected == spec([drained_one])
