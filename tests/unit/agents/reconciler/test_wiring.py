"""The reconciler keeps the ConfigMap with topology.conf up to date."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.kubernetes import KubernetesError
from agents.reconciler.__main__ import Reconciler
from agents.reconciler.carry import Place
from agents.reconciler.observed import Observed
from agents.reconciler.wanted import Topology
from agents.reconciler.wiring import LEAST, Wiring
from tests.support.kubeanswers import Answers, api
from tests.support.slurmnodes import NOW
from tests.support.topologyconf import TopologyConf, parse
from tests.unit.agents.reconciler.things import machine, observed, pod, wanted
from tests.unit.agents.reconciler.world import FakeApi, FakeSlurm, World

TREE = Topology(kind="tree", levels=(("zone",), ("rack",)))
NODES = ("cpu-0", "cpu-1", "cpu-2")
PATH = "/api/v1/namespaces/slurm/configmaps/topology"


class Kept:
    """Fake API server with one ConfigMap."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.writes = 0

    def keep(self, seen: Observed, now: int = NOW, **options: Any) -> str:
        version = {"metadata": {"resourceVersion": str(self.writes)}}
        answer = version if self.data is None else {**version, "data": self.data}
        answers = Answers(topology=[answer, version])
        made = Wiring(api(answers), "slurm", "topology").keep(TREE, NODES, seen, now, **options)
        for request in answers.asked:
            assert request.url.path == PATH
            if request.method == "PATCH":
                body = json.loads(request.content)
                assert body["metadata"] == {"resourceVersion": str(self.writes)}
                self.data = {**(self.data or {}), **body["data"]}
                self.writes += 1
        return made

    @property
    def conf(self) -> TopologyConf:
        assert self.data
        return parse(self.data["topology.conf"])


def labelled(**racks: str) -> Observed:
    """Return healthy nodes whose machines `machine_0`, … have these racks."""
    return observed(
        *(
            machine(name.replace("_", "-"), labels={"zone": "z", "rack": rack})
            for name, rack in racks.items()
        )
    )


RACKS = {"machine_0": "r1", "machine_1": "r1", "machine_2": "r2"}


def test_topology_is_written_once() -> None:
    kept = Kept()

    assert kept.keep(labelled(**RACKS)) == "done: write topology.conf: 2 leaf switches for 3 nodes"
    assert kept.conf.leaves == {"r1": ("cpu-0", "cpu-1"), "r2": ("cpu-2",)}

    assert kept.keep(labelled(**RACKS), NOW + 1000) == ""
    assert kept.writes == 1


def test_changed_label_is_written() -> None:
    kept = Kept()
    kept.keep(labelled(**RACKS))

    kept.keep(labelled(**{**RACKS, "machine_1": "r2"}), NOW + LEAST)

    assert kept.conf.leaves == {"r1": ("cpu-0",), "r2": ("cpu-1", "cpu-2")}


def test_topology_is_written_at_most_once_a_minute() -> None:
    kept = Kept()
    kept.keep(labelled(**RACKS))

    assert kept.keep(labelled(machine_0="r3"), NOW + LEAST - 1) == ""
    assert kept.writes == 1


def test_moved_node_follows_its_machine() -> None:
    kept = Kept()
    kept.keep(labelled(**RACKS))
    machines = labelled(**RACKS).machines.values()

    kept.keep(observed(*machines, pod("cpu-0", machine="machine-2")), NOW + LEAST)

    assert kept.conf.leaves == {"r1": ("cpu-1",), "r2": ("cpu-0", "cpu-2")}


def test_node_whose_pod_is_gone_keeps_its_place() -> None:
    kept = Kept()
    kept.keep(labelled(**RACKS))
    seen = labelled(**RACKS)

    gone = Observed(seen.records, {"cpu-0": seen.pods["cpu-0"]}, seen.machines)

    assert kept.keep(gone, NOW + LEAST) == ""
    assert kept.conf.leaves == {"r1": ("cpu-0", "cpu-1"), "r2": ("cpu-2",)}


def test_dry_run_writes_nothing() -> None:
    kept = Kept()

    said = kept.keep(labelled(**RACKS), dry_run=True)

    assert said == "planned: write topology.conf: 2 leaf switches for 3 nodes"
    assert kept.writes == 0


def test_only_one_of_two_writers_continues() -> None:
    read = {"metadata": {"resourceVersion": "1"}}
    conflict = httpx.Response(409, json={"message": "the object has been modified"})
    wiring = Wiring(api(Answers(topology=[read, conflict])), "slurm", "topology")

    with pytest.raises(KubernetesError, match="the object has been modified"):
        wiring.keep(TREE, NODES, labelled(**RACKS), NOW)


# --- Passes --------------------------------------------------------------------------------------


class Kubernetes(FakeApi):
    """Fake API with the ConfigMap, which may refuse requests."""

    refuses = False
    text = ""

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        if path != PATH:
            return super().ask(method, path, body, **options)
        if self.refuses:
            raise KubernetesError(f"{method} {path}", "HTTP 403 forbidden", 403)
        if body:
            self.text = body["data"]["topology.conf"]
        return {"metadata": {"resourceVersion": "1"}}


def reconciler(folder: Path, world: World, kubernetes: FakeApi) -> Reconciler:
    file = folder / "wanted.json"
    file.write_text(wanted(2, topology=TREE.model_dump()).model_dump_json())
    place = Place("slurm", "memory", {"kind": "Deployment", "name": "reconciler"}, "topology")
    return Reconciler(FakeSlurm(world), kubernetes, place, file, lambda: world.now)


def test_pass_writes_the_topology_and_an_event(tmp_path: Path) -> None:
    world = World(2, budget=2)
    kubernetes = Kubernetes(world)

    done = reconciler(tmp_path, world, kubernetes).look()

    assert done.actions() == ["done: write topology.conf: 1 leaf switch for 2 nodes"]
    assert world.messages == done.actions()
    assert parse(kubernetes.text).leaves == {"unplaced": ("cpu-0", "cpu-1")}


def test_failed_write_of_the_topology_is_reported_and_repairs_continue(tmp_path: Path) -> None:
    world = World(2, budget=2)
    world.boxes["cpu-1"].is_cordoned = True
    kubernetes = Kubernetes(world)
    kubernetes.refuses = True

    done = reconciler(tmp_path, world, kubernetes).look()

    assert world.boxes["cpu-1"].is_drained
    assert done.notes[-1].startswith("cannot write topology.conf: Kubernetes: GET")
