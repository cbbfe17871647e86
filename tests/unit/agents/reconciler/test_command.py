"""Output and exit codes of `python3 -m agents.reconciler`, and its wait after a deploy.

In a pass, the reconciler reads the state of all nodes once and acts on it. Its memory is a
ConfigMap with the progress of repairs.
"""

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.kubernetes import KubernetesError
from agents.reconciler import __main__ as command
from agents.reconciler import report
from agents.reconciler.__main__ import Pass, Reconciler
from agents.reconciler.actions import Action, Withdraw
from agents.reconciler.carry import Place
from agents.reconciler.memory import dumps
from agents.reconciler.plan import Plan, plan
from agents.reconciler.rollout import is_coming
from agents.reconciler.wanted import read
from agents.wanted import WantedError
from components import conventions as c
from components.slurmconf import wanted_nodes
from tests.support.metrics import series
from tests.support.ports import free_port
from tests.support.slurmnodes import NOW, drained, moment, node
from tests.support.stack import FULL, settings
from tests.unit.agents.reconciler.things import machine, observed, pod, wanted
from tests.unit.agents.reconciler.world import FakeApi, FakeSlurm, World


class Kubernetes(FakeApi):
    """Fake API that also has a Job and events."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.events: list[dict[str, Any]] = []
        self.reports: list[str] = []

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        if path.endswith("/events"):
            self._world.receive("kubernetes")
            self.events.append(body)
            return {}
        if "/jobs/" in path:
            self._world.receive("kubernetes")
            assert path.endswith(f"/jobs/{c.AFTER_DEPLOY}")
            self.reports += body["metadata"]["annotations"].values()
            return {}
        return super().ask(method, path, body, **options)


class Setting:
    """A world with two nodes, and a reconciler for it."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.world = World(2, budget=2)
        self.kubernetes = Kubernetes(self.world)
        self.slept = 0.0
        self.at: tuple[float, Callable[[], None]] | None = None
        """Event that happens after a number of slept seconds."""
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
        if self.at and self.slept >= self.at[0]:
            self.at[1]()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path / "wanted.json")


# --- One pass ------------------------------------------------------------------------------------


def test_command_exits_with_0_when_all_nodes_are_in_service(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setting.run("--once") == 0
    assert capsys.readouterr().out == "2 of 2 nodes are in service\n"


def test_command_exits_with_1_after_acting_on_a_node(setting: Setting) -> None:
    setting.world.boxes["cpu-1"].is_cordoned = True

    assert setting.run("--once") == 1
    assert setting.world.boxes["cpu-1"].reason.startswith("slurmstack:kubernetes:cordoned")


def test_command_exits_with_3_when_a_person_is_needed(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "wanted.json", share=0.1)
    for box in setting.world.boxes.values():
        box.is_cordoned = True

    assert setting.run("--once") == 3


@pytest.mark.parametrize("service", ["slurm", "kubernetes"])
def test_failed_query_exits_with_2_and_changes_nothing(
    setting: Setting, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setting.world.boxes["cpu-1"].is_cordoned = True
    setattr(setting.world, f"{service}_silent_at", 1)

    assert setting.run("--once") == 2
    assert not setting.world.done
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_unreadable_settings_exit_with_2(setting: Setting, tmp_path: Path, text: str) -> None:
    (tmp_path / "wanted.json").write_text(text)

    assert setting.run("--once") == 2
    with pytest.raises(WantedError, match=r"wanted\.json: cannot read the agent's settings"):
        read(tmp_path / "wanted.json")
    with pytest.raises(WantedError, match="nowhere"):
        read(tmp_path / "nowhere")


def test_unreadable_memory_exits_with_2_and_changes_nothing(setting: Setting) -> None:
    setting.world.boxes["cpu-1"].is_cordoned = True
    setting.world.memory = "{"

    assert setting.run("--once") == 2
    assert not setting.world.done


@pytest.mark.parametrize("options", [("--dry-run",), ("--once", "--dry-run")])
def test_dry_run_shows_the_plan_and_changes_nothing(
    setting: Setting, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    setting.world.boxes["cpu-1"].is_cordoned = True

    assert setting.run(*options) == 1
    assert "drain node cpu-1: slurmstack:kubernetes:cordoned: " in capsys.readouterr().out
    assert not setting.world.done
    assert setting.world.memory == dumps({})


def test_json_output_is_one_line(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    setting.world.boxes["cpu-1"].is_cordoned = True

    setting.run("--once", "--json")
    output = json.loads(capsys.readouterr().out)
    assert (output["code"], output["wanted"], output["in_service"]) == (1, 2, 2)
    assert output["actions"][0]["action"] == "drain"
    assert output["out"][0]["node"] == "cpu-1"
    assert output["notes"] == []


def test_number_of_nodes_in_the_report_is_limited() -> None:
    machines = [machine(f"machine-{i}", is_cordoned=True) for i in range(60)]
    output = report.text(plan(observed(*machines, replicas=60), wanted(60), {}, NOW)).splitlines()

    assert len(output) == report.MOST + 2
    assert output[-1] == "and 10 more problems of nodes, which --json shows"


# --- Repeated passes -----------------------------------------------------------------------------


def run_until_sigterm(setting: Setting) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert setting.run() == 0
    finally:
        signal.signal(signal.SIGTERM, before)


def test_changed_pod_template_starts_a_pass_before_the_interval_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(tmp_path / "wanted.json", interval=3600)
    look = setting.reconciler.look
    monkeypatch.setattr(command, "SOON", 0.01)

    def edit_once() -> command.Pass:
        if setting.world.revision > 1:
            signal.raise_signal(signal.SIGTERM)
        done = look()
        setting.world.edit()
        return done

    monkeypatch.setattr(setting.reconciler, "look", edit_once)
    run_until_sigterm(setting)

    assert setting.world.done["renew"] == 1


def test_passes_continue_after_a_failure_until_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = Setting(tmp_path / "wanted.json", interval=0)
    look, looks = setting.reconciler.look, 0

    def fail_once_then_succeed() -> command.Pass:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise KubernetesError("GET /x", "silent")
        if looks == 3:
            signal.raise_signal(signal.SIGTERM)
        return look()

    monkeypatch.setattr(setting.reconciler, "look", fail_once_then_succeed)
    run_until_sigterm(setting)
    output = capsys.readouterr()
    assert looks == 3
    failure, in_service = output.err.splitlines()
    assert failure.startswith('level=error msg="the check of the nodes did not finish: ')
    assert failure.endswith('; the next pass tries again"')
    assert in_service == 'level=info msg="2 of 2 nodes are in service"', (
        "an unchanged report is logged once"
    )


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Free port at which the reconciler serves its metrics."""
    number = free_port()
    monkeypatch.setenv("PORT", str(number))
    return number


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the reconciler after one pass."""
    before = signal.getsignal(signal.SIGTERM)
    look = Reconciler.look

    def once(self: Reconciler) -> command.Pass:
        signal.raise_signal(signal.SIGTERM)
        return look(self)

    monkeypatch.setattr(Reconciler, "look", once)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("stopped")
def test_metrics_show_findings_and_steps(setting: Setting, port: int) -> None:
    setting.world.boxes["cpu-1"].is_cordoned = True

    assert setting.run() == 0
    # The server of a real reconciler has ended here. In the test's process, it continues.
    found = series(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).content)
    assert found['slurmstack_reconciler_passes_total{result="done"}'] == 1
    assert found['slurmstack_steps_total{node="cpu-1",step="drain"}'] == 1
    assert found['slurmstack_steps_total{node="cpu-0",step="drain"}'] == 0
    assert found['slurmstack_node_silences_total{node="cpu-0"}'] == 0
    assert found['slurmstack_node_finding{finding="cordoned",node="cpu-1",step="none"}'] == 1
    assert found["slurmstack_nodes_wanted"] == 2
    assert abs(found["slurmstack_reconciler_last_pass_timestamp_seconds"] - time.time()) < 60


@pytest.mark.usefixtures("stopped")
def test_pass_is_counted_as_failed_if_slurm_does_not_answer(setting: Setting, port: int) -> None:
    setting.world.slurm_silent_at = 1

    assert setting.run() == 0
    found = series(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).content)
    assert found['slurmstack_reconciler_passes_total{result="failed"}'] == 1
    assert "slurmstack_nodes_wanted" not in found


@pytest.mark.usefixtures("stopped")
def test_passes_run_even_if_the_metrics_port_is_in_use(
    setting: Setting, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("", port))
        other.listen()
        assert setting.run() == 0

    failure, in_service = capsys.readouterr().err.splitlines()
    assert failure.startswith(f'level=error msg="variable PORT={port}: cannot serve metrics: ')
    assert in_service == 'level=info msg="2 of 2 nodes are in service"'


def test_option_once_serves_no_metrics(setting: Setting, port: int) -> None:
    assert setting.run("--once") == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)


@pytest.mark.parametrize(
    ("done", "status"), [(None, "planned"), ((), "not done"), ((Withdraw("m1"),), "done")]
)
def test_line_of_an_action_says_whether_it_is_done(
    done: tuple[Action, ...] | None, status: str
) -> None:
    made = Pass(Plan((Withdraw("m1"),), {}, (), 1, 1), {}, (), done=done)

    assert made.actions() == [f"{status}: withdraw the request to reboot machine m1"]


# --- After a deploy ------------------------------------------------------------------------------


def test_option_after_deploy_writes_the_report_to_job_and_event(setting: Setting) -> None:
    setting.world.boxes["cpu-1"].is_cordoned = True

    assert setting.run("--after-deploy") == 0, "a node out of service does not fail the deploy"
    (report,) = setting.kubernetes.reports
    acted, event = setting.kubernetes.events
    assert acted["message"].startswith("done: drain node cpu-1: slurmstack:kubernetes:cordoned")
    assert report.splitlines()[0] == "2 of 2 nodes are in service"
    assert "cpu-1: cordoned" in report
    assert (event["type"], event["message"]) == ("Warning", report)
    assert setting.world.done["drain"] == 1


def test_event_is_normal_when_all_nodes_are_in_service(setting: Setting) -> None:
    setting.run("--after-deploy")

    assert [event["type"] for event in setting.kubernetes.events] == ["Normal"]


def test_report_waits_until_nodes_without_jobs_are_updated(tmp_path: Path) -> None:
    """The Job after a deploy only waits. The reconciler that always runs replaces the pod."""
    setting = Setting(tmp_path / "wanted.json", rollout=900)
    setting.world.edit()
    first, second = setting.world.boxes.values()
    first.revision = setting.world.revision

    def update() -> None:
        second.revision = setting.world.revision

    setting.at = (3 * command.PAUSE, update)

    assert setting.run("--after-deploy") == 0
    assert setting.slept == 3 * command.PAUSE


def test_report_does_not_wait_for_jobs_on_outdated_nodes(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "wanted.json", rollout=900)
    setting.world.edit()
    for box in setting.world.boxes.values():
        box.jobs = 1

    assert setting.run("--after-deploy") == 0
    assert setting.slept == 0
    assert "cpu: nodes that still have old settings: 2" in setting.kubernetes.reports[0]


def test_report_waits_for_starting_nodes_up_to_the_rollout_limit(
    tmp_path: Path,
) -> None:
    setting = Setting(tmp_path / "wanted.json", rollout=60)
    setting.world.boxes["cpu-1"].pod_ready = False

    assert setting.run("--after-deploy") == 0
    assert setting.slept == 60
    assert "cpu-1: pod" in setting.kubernetes.reports[0]


def test_report_does_not_wait_if_the_rollout_limit_is_0(setting: Setting) -> None:
    setting.world.boxes["cpu-1"].pod_ready = False

    assert setting.run("--after-deploy") == 0
    assert setting.slept == 0


def test_option_after_deploy_fails_when_slurm_is_unavailable(setting: Setting) -> None:
    setting.world.slurm_silent_at = 1

    assert setting.run("--after-deploy") == 2
    assert setting.kubernetes.reports == []


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
def test_report_waits_only_for_nodes_that_are_starting(seen: Any, coming: bool) -> None:
    assert is_coming(seen, wanted(), NOW) is coming


# --- Settings ------------------------------------------------------------------------------------


def test_reconciler_reads_the_rendered_settings(tmp_path: Path) -> None:
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
def test_evidence_expires_after_three_intervals(
    tmp_path: Path, health: dict[str, Any], seconds: int | None
) -> None:
    path = tmp_path / "wanted.json"
    path.write_text(wanted_nodes(settings(lambda values: values.update(health=health))))

    assert read(path).evidence == seconds


def test_node_parameters_in_the_settings_override_the_expected_size(tmp_path: Path) -> None:
    path = tmp_path / "wanted.json"
    path.write_text(
        wanted_nodes(settings(lambda v: v["nodesets"][0].update(parameters={"realmemory": 1024})))
    )

    cpu = read(path).nodesets["cpu"]
    assert (cpu.cpus, cpu.memory) == (2, 1024)
    assert "realmemory=1024" in cpu.conf


def test_command_exits_with_2_outside_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    names = {"OWNER": "v1 Pod me", "NAMESPACE": "slurm", "MEMORY": "memory"}
    kept = {"TOPOLOGY": "topology", "BUDGET": "busy-nodes"}
    paths = {"REST_URL": "http://x", "JWT_KEY": str(tmp_path), "WANTED": str(tmp_path)}
    for name, value in {**names, **kept, **paths}.items():
        monkeypatch.setenv(name, value)

    assert command.main(["--once"]) == 2
