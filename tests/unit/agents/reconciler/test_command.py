"""The command: what it tells, how it ends, and how it waits for a roll-out."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.reconciler import __main__ as command
from agents.reconciler import report
from agents.reconciler.__main__ import Reconciler
from agents.reconciler.carry import Place
from agents.reconciler.kubernetes import KubernetesError
from agents.reconciler.memory import dumps
from agents.reconciler.plan import plan
from agents.reconciler.rollout import is_coming, nodesets_rolling
from agents.reconciler.wanted import WantedError, read
from components import conventions as c
from components.slurmconf import wanted_nodes
from tests.support.metrics import series
from tests.support.ports import free_port
from tests.support.stack import FULL, settings
from tests.unit.agents.reconciler.things import (
    NOW,
    drained,
    machine,
    moment,
    node,
    observed,
    pod,
    wanted,
)
from tests.unit.agents.reconciler.world import FakeApi, FakeSlurm, World


class Kubernetes(FakeApi):
    """With a Job, StatefulSets and events as well."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.events: list[dict[str, Any]] = []
        self.reports: list[str] = []
        self.rolling = 0
        """How many more looks see a roll-out."""

    def items(self, path: str, kind: Any, **parameters: str) -> Any:
        if not path.endswith("/statefulsets"):
            return super().items(path, kind, **parameters)
        self._world.heard("kubernetes")
        self.rolling -= 1
        return iter([statefulset("cpu", updated="2" if self.rolling < 0 else "3")])

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        if path.endswith("/events"):
            self._world.heard("kubernetes")
            self.events.append(body)
            return {}
        if "/jobs/" in path:
            self._world.heard("kubernetes")
            assert path.endswith(f"/jobs/{c.AFTER_DEPLOY}")
            self.reports += body["metadata"]["annotations"].values()
            return {}
        return super().ask(method, path, body, **options)


def statefulset(name: str, updated: str = "2", seen: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "generation": 1},
        "status": {"observedGeneration": seen, "currentRevision": "2", "updateRevision": updated},
    }


class Setting:
    """A world with two nodes, and the command in it."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.world = World(2, budget=2)
        self.kubernetes = Kubernetes(self.world)
        self.slept = 0.0
        path.write_text(wanted(2, **fields).model_dump_json())
        place = Place("slurm", "memory", {"kind": "Job", "name": c.AFTER_DEPLOY})
        slurm = FakeSlurm(self.world)
        self.reconciler = Reconciler(
            slurm, self.kubernetes, place, path, lambda: self.world.now + self.slept
        )

    def run(self, *options: str) -> int:
        return command.main(options, self.reconciler, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.fixture
def at(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "wanted.json")


# --- One look ------------------------------------------------------------------------------------


def test_with_all_nodes_in_service_it_ends_with_0(
    at: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert at.run("--once") == 0
    assert capsys.readouterr().out == "2 of 2 nodes are in service\n"


def test_with_a_node_that_is_handled_it_ends_with_1_and_has_acted(at: Setting) -> None:
    at.world.boxes["cpu-1"].is_cordoned = True

    assert at.run("--once") == 1
    assert at.world.boxes["cpu-1"].reason.startswith("slurmstack:kubernetes:cordoned")


def test_where_a_person_is_needed_it_ends_with_3(tmp_path: Path) -> None:
    at = Setting(tmp_path / "wanted.json", share=0.1)
    for box in at.world.boxes.values():
        box.is_cordoned = True

    assert at.run("--once") == 3


@pytest.mark.parametrize("who", ["slurm", "kubernetes"])
def test_where_one_cannot_be_asked_it_ends_with_2_and_has_done_nothing(
    at: Setting, who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at.world.boxes["cpu-1"].is_cordoned = True
    setattr(at.world, f"{who}_silent_at", 1)

    assert at.run("--once") == 2
    assert not at.world.done
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_from_settings_that_cannot_be_read_nothing_is_concluded(
    at: Setting, tmp_path: Path, text: str
) -> None:
    (tmp_path / "wanted.json").write_text(text)

    assert at.run("--once") == 2
    with pytest.raises(WantedError, match=r"wanted\.json: cannot read the settings"):
        read(tmp_path / "wanted.json")
    with pytest.raises(WantedError, match="nowhere"):
        read(tmp_path / "nowhere")


def test_from_a_memory_that_cannot_be_read_nothing_is_concluded(at: Setting) -> None:
    at.world.boxes["cpu-1"].is_cordoned = True
    at.world.memory = "{"

    assert at.run("--once") == 2
    assert not at.world.done


@pytest.mark.parametrize("options", [("--dry-run",), ("--once", "--dry-run")])
def test_a_dry_run_shows_the_plan_and_changes_nothing(
    at: Setting, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    at.world.boxes["cpu-1"].is_cordoned = True

    assert at.run(*options) == 1
    assert "cpu-1: drained: slurmstack:kubernetes:cordoned: " in capsys.readouterr().out
    assert not at.world.done
    assert at.world.memory == dumps({})


def test_as_json_it_is_one_line_for_programs(
    at: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    at.world.boxes["cpu-1"].is_cordoned = True

    at.run("--once", "--json")
    told = json.loads(capsys.readouterr().out)
    assert (told["code"], told["wanted"], told["in_service"]) == (1, 2, 2)
    assert told["actions"][0]["action"] == "drain"
    assert told["out"][0]["node"] == "cpu-1"
    assert told["notes"] == []


def test_a_report_names_so_many_nodes_and_counts_the_others() -> None:
    machines = [machine(f"machine-{i}", is_cordoned=True) for i in range(60)]
    told = report.text(plan(observed(*machines, replicas=60), wanted(60), {}, NOW)).splitlines()

    assert len(told) == report.MOST + 2
    assert told[-1] == "and 10 more"


# --- Again and again -----------------------------------------------------------------------------


def test_it_looks_again_after_a_look_that_failed_until_it_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = Setting(tmp_path / "wanted.json", interval=0)
    look, looks = at.reconciler.look, 0

    def once_in_vain_and_twice_well() -> command.Pass:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise KubernetesError("GET /x", "silent")
        if looks == 3:
            signal.raise_signal(signal.SIGTERM)
        return look()

    monkeypatch.setattr(at.reconciler, "look", once_in_vain_and_twice_well)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert at.run() == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    told = capsys.readouterr()
    assert looks == 3
    in_vain, in_service = told.err.splitlines()
    assert in_vain.startswith('level=error msg="the pass over the nodes did not finish: ')
    assert in_service == 'level=info msg="2 of 2 nodes are in service"', "the same is told once"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port, which the reconciler is told to serve its metrics at."""
    number = free_port()
    monkeypatch.setenv("PORT", str(number))
    return number


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It is told to stop when it has looked once."""
    before = signal.getsignal(signal.SIGTERM)
    look = Reconciler.look

    def once(self: Reconciler) -> command.Pass:
        signal.raise_signal(signal.SIGTERM)
        return look(self)

    monkeypatch.setattr(Reconciler, "look", once)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("stopped")
def test_what_passes_find_and_do_is_served_as_metrics(at: Setting, port: int) -> None:
    at.world.boxes["cpu-1"].is_cordoned = True

    assert at.run() == 0
    # The process of a reconciler ends then, and its server with it; that of the tests does not.
    found = series(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).content)
    assert found['slurmstack_reconciler_passes_total{result="done"}'] == 1
    assert found['slurmstack_steps_total{node="cpu-1",step="drain"}'] == 1
    assert found['slurmstack_steps_total{node="cpu-0",step="drain"}'] == 0
    assert found['slurmstack_node_silences_total{node="cpu-0"}'] == 0
    assert found['slurmstack_node_finding{finding="cordoned",node="cpu-1",step="none"}'] == 1
    assert found["slurmstack_nodes_wanted"] == 2
    assert abs(found["slurmstack_reconciler_last_pass_timestamp_seconds"] - time.time()) < 60


@pytest.mark.usefixtures("stopped")
def test_a_pass_that_could_not_ask_is_counted_as_failed(at: Setting, port: int) -> None:
    at.world.slurm_silent_at = 1

    assert at.run() == 0
    found = series(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).content)
    assert found['slurmstack_reconciler_passes_total{result="failed"}'] == 1
    assert "slurmstack_nodes_wanted" not in found


@pytest.mark.usefixtures("stopped")
def test_a_port_that_is_taken_keeps_it_from_nothing(
    at: Setting, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("", port))
        other.listen()
        assert at.run() == 0

    in_vain, in_service = capsys.readouterr().err.splitlines()
    assert in_vain.startswith(f'level=error msg="PORT {port}: cannot serve metrics: ')
    assert in_service == 'level=info msg="2 of 2 nodes are in service"'


def test_one_look_serves_no_metrics(at: Setting, port: int) -> None:
    assert at.run("--once") == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)


# --- After a deploy ------------------------------------------------------------------------------


def test_after_a_deploy_the_report_is_left_where_it_is_read(at: Setting) -> None:
    at.world.boxes["cpu-1"].is_cordoned = True

    assert at.run("--after-deploy") == 0, "a node that is out is no failure of the deploy"
    (report,) = at.kubernetes.reports
    acted, event = at.kubernetes.events
    assert acted["message"].startswith("cpu-1: drained: slurmstack:kubernetes:cordoned")
    assert report.splitlines()[0] == "2 of 2 nodes are in service"
    assert "cpu-1: cordoned" in report
    assert (event["type"], event["message"]) == ("Warning", report)
    assert at.world.done["drain"] == 1


def test_where_all_is_well_the_event_is_no_warning(at: Setting) -> None:
    at.run("--after-deploy")

    assert [event["type"] for event in at.kubernetes.events] == ["Normal"]


def test_it_waits_until_the_roll_out_is_over(tmp_path: Path) -> None:
    at = Setting(tmp_path / "wanted.json", rollout=900)
    at.kubernetes.rolling = 3

    assert at.run("--after-deploy") == 0
    assert at.slept == 3 * command.PAUSE


def test_it_waits_for_a_node_that_starts_but_not_longer_than_the_settings_say(
    tmp_path: Path,
) -> None:
    at = Setting(tmp_path / "wanted.json", rollout=60)
    at.world.boxes["cpu-1"].pod_ready = False

    assert at.run("--after-deploy") == 0
    assert at.slept == 60
    assert "cpu-1: pod" in at.kubernetes.reports[0]


def test_with_no_time_for_the_roll_out_it_looks_once(at: Setting) -> None:
    at.world.boxes["cpu-1"].pod_ready = False

    assert at.run("--after-deploy") == 0
    assert at.slept == 0


def test_a_deploy_whose_nodes_cannot_be_asked_for_fails(at: Setting) -> None:
    at.world.slurm_silent_at = 1

    assert at.run("--after-deploy") == 2
    assert at.kubernetes.reports == []


@pytest.mark.parametrize(
    ("seen", "coming"),
    [
        (observed(), False),
        (observed(pod("cpu-1", is_ready=False)), True),
        (observed(without="record cpu-1"), True),
        (observed(drained("cpu-1", "slurmstack:leave"), pod("cpu-1", leaves=NOW + 9)), True),
        (observed(pod("cpu-1", is_ready=False, machine="")), False),
        (observed(machine("machine-1", is_cordoned=True), pod("cpu-1", is_ready=False)), False),
        (observed(drained("cpu-1", "broken-fan"), pod("cpu-1", is_ready=False)), False),
        (observed(node("cpu-1", cpus=1)), False),
        (observed(node("cpu-1", started=moment(NOW - 60)), configured=NOW), True),
    ],
)
def test_only_who_is_on_the_way_is_waited_for(seen: Any, coming: bool) -> None:
    assert is_coming(seen, wanted(), NOW) is coming


@pytest.mark.parametrize(
    ("item", "rolls"),
    [
        (statefulset("cpu"), []),
        (statefulset("cpu", updated="3"), ["cpu"]),
        (statefulset("cpu", seen=0), ["cpu"]),
        (statefulset("another", updated="3"), []),
    ],
)
def test_a_nodeset_rolls_until_all_pods_are_of_the_last_revision(
    item: dict[str, Any], rolls: list[str]
) -> None:
    class One(FakeApi):
        def items(self, path: str, kind: Any, **parameters: str) -> Any:
            return iter([item])

    assert nodesets_rolling(One(World(1, 1)), "slurm", wanted()) == rolls


# --- What the settings say -----------------------------------------------------------------------


def test_what_the_settings_want_is_what_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "wanted.json"
    path.write_text(wanted_nodes(settings(base=FULL)))

    asked = read(path)
    gpu, slices = asked.nodesets["gpu"], asked.nodesets["slices"]
    assert (gpu.replicas, gpu.cpus, gpu.gpus, gpu.conf) == (4, 64, 8, "")
    assert gpu.memory == 512 * 1024 - 4096
    assert slices.gpus == 7
    assert asked.ladder_of("gpu-xid") == ("recheck", "reboot", "replace")
    assert asked.ladder_of("disk") == ("recheck", "restart")
    assert list(asked.nodes())[:2] == ["gpu-0", "gpu-1"]


@pytest.mark.parametrize(
    ("health", "seconds"),
    [
        ({}, 180),
        ({"interval": 300}, 900),
        ({"node_states": ["idle", "mixed", "alloc"]}, 180),
        ({"node_states": ["idle", "mixed"]}, None),
        ({"enabled": False}, None),
    ],
)
def test_a_node_may_go_without_evidence_for_three_looks(
    tmp_path: Path, health: dict[str, Any], seconds: int | None
) -> None:
    path = tmp_path / "wanted.json"
    path.write_text(wanted_nodes(settings(lambda values: values.update(health=health))))

    assert read(path).evidence == seconds


def test_a_free_parameter_of_a_nodeset_has_the_last_word_on_its_size(tmp_path: Path) -> None:
    path = tmp_path / "wanted.json"
    path.write_text(
        wanted_nodes(settings(lambda v: v["nodesets"][0].update(parameters={"realmemory": 1024})))
    )

    cpu = read(path).nodesets["cpu"]
    assert (cpu.cpus, cpu.memory) == (2, 1024)
    assert "realmemory=1024" in cpu.conf


def test_outside_of_a_cluster_it_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    names = {"OWNER": "v1 Pod me", "NAMESPACE": "slurm", "MEMORY": "memory", "REST_URL": "http://x"}
    for name, value in {**names, "JWT_KEY": str(tmp_path), "WANTED": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)

    assert command.main(["--once"]) == 2


def test_the_error_of_kubernetes_tells_what_can_be_done() -> None:
    assert str(KubernetesError("GET /x", "HTTP 500", 500)).endswith("; the next pass tries again")
