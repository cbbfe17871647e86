"""A run measures each node once, even if users occupy nodes or the pod is killed."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agents.drains import Evidence
from agents.longchecks import series as files
from agents.longchecks.judge import Verdict
from agents.longchecks.series import BusyError, Series, Target, alone
from agents.slurm import SlurmError
from tests.unit.agents.longchecks.world import LOGS, START, Killed, World, iperf, triad

Measure = Callable[[Target], str]


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


def good(_: Target) -> str:
    return triad(5000)


def slow(name: str) -> Measure:
    return lambda target: triad(500 if target == (name,) else 5000)


def slow_link(*names: str) -> Measure:
    """Return a function that measures a slow link if a pair contains one of these nodes."""
    return lambda target: iperf(0.1 if set(names) & set(target) else 10)


# --- Single nodes --------------------------------------------------------------------------------


def test_run_measures_each_node_of_the_nodesets_exactly_once(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0", "cpu-1", "cpu-10", "cpu-2", "other-0")
    summary = world.run()

    assert [job.target for job in world.jobs.values()] == [
        ("cpu-0",),
        ("cpu-1",),
        ("cpu-2",),
        ("cpu-10",),
    ]
    assert world.values() == {name: [5000] for name in ("cpu-0", "cpu-1", "cpu-2", "cpu-10")}
    assert not summary.bad
    assert not summary.left


def test_setting_at_once_limits_the_number_of_concurrent_jobs(tmp_path: Path) -> None:
    world = World(tmp_path, good, *(f"cpu-{n}" for n in range(7)))
    most = 0
    tick = world.tick

    def watched() -> None:
        nonlocal most
        tick()
        most = max(most, sum(job.state in ("PENDING", "RUNNING") for job in world.jobs.values()))

    world.tick = watched  # type: ignore[method-assign]
    world.run(at_once=3)

    assert most == 3
    assert len(world.values()) == 7


def test_job_runs_as_slurmstack_checks_on_the_requested_node(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, good, "cpu-0")
    world.run()
    (job,) = world.jobs.values()

    assert job.user == "slurmstack-checks"
    assert job.target == ("cpu-0",)
    assert Path(job.output).parent == Path(LOGS)
    assert "MEMORY_MIB=64000" in job.environment


def test_drain_reason_names_the_measured_and_the_expected_value(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, slow("cpu-1"), "cpu-0", "cpu-1")
    summary = world.run()

    assert world.nodes["cpu-1"].reason == (
        "slurmstack:longcheck:cpu-memory: 500 MB/s, expected at least 1000"
    )
    assert summary.bad == ("cpu-1",)
    assert world.nodes["cpu-0"].state == {"IDLE", "DYNAMIC_NORM"}


def test_node_below_its_own_history_is_drained(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    for _ in range(5):
        world.run()
    world.measure = lambda _: triad(4000)
    world.run()

    assert "20.0% less than 5000, the median" in world.nodes["cpu-0"].reason


def test_bad_values_do_not_enter_the_history(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    for _ in range(5):
        world.run()
    world.measure = lambda _: triad(4000)
    for _ in range(20):
        world.run()
        node = world.nodes["cpu-0"]
        assert "DRAIN" in node.state
        node.state -= {"DRAIN"}  # an operator resumes the node


def test_missing_program_does_not_drain_the_node(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _: "no membw on the PATH: install it in the jail", "cpu-0")
    summary = world.run()

    assert summary.is_without_value
    assert summary.records[0].verdict is Verdict.UNKNOWN
    assert "install it in the jail" in summary.records[0].text
    assert "DRAIN" not in world.nodes["cpu-0"].state


@pytest.mark.parametrize("reason", ["dead fan", "slurmstack:check:disk: /tmp is full"])
def test_drained_node_is_skipped_and_keeps_its_reason(tmp_path: Path, reason: str) -> None:
    world = World(tmp_path, good, "cpu-0", "cpu-1")
    world.nodes["cpu-0"].state |= {"DRAIN"}
    world.nodes["cpu-0"].reason = reason
    summary = world.run()

    assert [job.target for job in world.jobs.values()] == [("cpu-1",)]
    assert reason in summary.left["cpu-0"]
    assert world.nodes["cpu-0"].reason == reason


@pytest.mark.parametrize("state", ["POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"])
def test_check_does_not_start_on_demand_nodes(tmp_path: Path, state: str) -> None:
    world = World(tmp_path, good, "cpu-0", "cpu-1")
    world.nodes["cpu-0"].state |= {state}
    summary = world.run()

    assert [job.target for job in world.jobs.values()] == [("cpu-1",)]
    assert state.lower() in summary.left["cpu-0"]


def test_reason_of_a_drain_during_the_job_is_not_overwritten(tmp_path: Path) -> None:
    def measure(_: Target) -> str:
        world.nodes["cpu-0"].state |= {"DRAIN"}
        world.nodes["cpu-0"].reason = "dead fan"
        return triad(500)

    world = World(tmp_path, measure, "cpu-0")
    summary = world.run()

    assert world.nodes["cpu-0"].reason == "dead fan"
    assert summary.bad == ("cpu-0",)


# --- Users have priority -------------------------------------------------------------------------


def test_busy_node_is_measured_after_its_job_ended(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0", "cpu-1")
    world.nodes["cpu-0"].user_until = START + 300
    world.run()

    assert [job.target for job in world.jobs.values()] == [("cpu-1",), ("cpu-0",)]
    assert world.jobs[2].started >= START + 300


def test_node_that_stays_busy_is_left_for_the_next_run(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0", "cpu-1")
    world.nodes["cpu-0"].user_until = START + 1_000_000
    summary = world.run()

    assert world.values() == {"cpu-1": [5000]}
    assert "allocated" in summary.left["cpu-0"]
    assert "next run" in summary.left["cpu-0"]
    assert any("cpu-0" in line for line in world.lines)
    assert world.now - START < 3 * 600


def test_waiting_check_job_is_cancelled_if_its_node_gets_busy(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    tick = world.tick

    def with_user() -> None:
        if len(world.jobs) == 1:
            world.nodes["cpu-0"].user_until = START + 120
        tick()

    world.tick = with_user  # type: ignore[method-assign]
    world.run()

    assert [job.state for job in world.jobs.values()] == ["CANCELLED", "COMPLETED"]
    assert world.values() == {"cpu-0": [5000]}


def test_preempted_job_is_repeated(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    world.preempted = {1}
    world.run()

    assert [job.state for job in world.jobs.values()] == ["PREEMPTED", "COMPLETED"]
    assert world.values() == {"cpu-0": [5000]}


# --- Pairs ---------------------------------------------------------------------------------------


def test_every_node_is_measured_in_a_pair(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _: iperf(10), "cpu-0", "cpu-1", "cpu-2")
    world.run("network", at_once=5)

    assert {job.target for job in world.jobs.values()} == {("cpu-0", "cpu-1"), ("cpu-2", "cpu-0")}
    assert set(world.values("network")) == {"cpu-0", "cpu-1", "cpu-2"}


def test_only_the_node_with_a_second_bad_pair_is_drained(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, slow_link("cpu-1"), *(f"cpu-{n}" for n in range(4)))
    summary = world.run("network")

    drained = {name for name, node in world.nodes.items() if "DRAIN" in node.state}
    assert drained == {"cpu-1"}
    assert summary.bad == ("cpu-1",)
    assert world.nodes["cpu-1"].reason.startswith("slurmstack:longcheck:network: 0.1 Gbit/s")


def test_single_slow_pair_drains_neither_node(tmp_path: Path) -> None:
    world = World(tmp_path, slow_link("cpu-1"), "cpu-0", "cpu-1")
    summary = world.run("network")

    assert not any("DRAIN" in node.state for node in world.nodes.values())
    assert not summary.bad
    assert any("it is unknown which node is faulty" in line for line in world.lines)


# --- Only the same check lifts a drain -----------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "value", "lifted"),
    [
        ("slurmstack:longcheck:cpu-memory: 500 MB/s", 5000, True),
        ("slurmstack:longcheck:cpu-memory: 500 MB/s", 400, False),
        ("slurmstack:longcheck:network: 1 Gbit/s", 5000, False),
        ("slurmstack:check:disk: full", 5000, False),
        ("dead fan", 5000, False),
    ],
)
def test_good_manual_measurement_lifts_only_drains_of_its_check(
    tmp_path: Path, reason: str, value: float, lifted: bool
) -> None:
    world = World(tmp_path, good, "cpu-0")
    node = world.nodes["cpu-0"]
    node.state |= {"DRAIN"}
    node.reason, node.reason_time = reason, START - 100
    world.runner("cpu-memory").record(["cpu-0"], f"{triad(value)}\nslurmstack: ended with 0\n")

    assert ("DRAIN" not in node.state) == lifted
    assert node.reason == ("" if lifted else reason)
    assert world.values() == {"cpu-0": [value]}


def test_failed_quick_check_keeps_the_node_drained(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, good, "cpu-0")
    node = world.nodes["cpu-0"]
    node.state |= {"DRAIN"}
    node.reason, node.reason_time = "slurmstack:longcheck:cpu-memory: 500 MB/s", START - 100
    node.extra = str(Evidence(START - 10, failed=("disk",)))
    world.runner("cpu-memory").record(["cpu-0"], f"{triad(5000)}\nslurmstack: ended with 0\n")
    assert "DRAIN" in node.state

    node.extra = str(Evidence(START - 5))
    world.sleep(60)
    world.runner("cpu-memory").record(["cpu-0"], f"{triad(5000)}\nslurmstack: ended with 0\n")
    assert "DRAIN" not in node.state


def test_unresponsive_node_is_not_resumed(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    node = world.nodes["cpu-0"]
    node.state |= {"DRAIN", "NOT_RESPONDING"}
    node.reason, node.reason_time = "slurmstack:longcheck:cpu-memory: 500 MB/s", START - 100
    world.runner("cpu-memory").record(["cpu-0"], f"{triad(5000)}\nslurmstack: ended with 0\n")

    assert "DRAIN" in node.state


def test_node_deleted_during_its_job_does_not_delay_others(tmp_path: Path) -> None:
    def measure(target: Target) -> str:
        if target == ("cpu-0",):
            world.nodes.pop("cpu-0", None)
        return triad(500 if target == ("cpu-0",) else 5000)

    world = World(tmp_path, measure, "cpu-0", "cpu-1")
    world.run()

    assert world.values() == {"cpu-0": [500], "cpu-1": [5000]}


def test_drain_is_not_lifted_by_a_measurement_that_began_earlier(tmp_path: Path) -> None:
    def measure(_: Target) -> str:
        node = world.nodes["cpu-0"]
        node.state |= {"DRAIN"}
        node.reason, node.reason_time = "slurmstack:longcheck:cpu-memory: 1 MB/s", world.now
        return triad(5000)

    world = World(tmp_path, measure, "cpu-0")
    world.run()

    assert "DRAIN" in world.nodes["cpu-0"].state


def test_truncated_output_does_not_lift_a_drain(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    node = world.nodes["cpu-0"]
    node.state |= {"DRAIN"}
    node.reason = "slurmstack:longcheck:cpu-memory: 500 MB/s"
    summary = world.runner("cpu-memory").record(["cpu-0"], triad(5000))

    assert "DRAIN" in node.state
    assert summary.is_without_value


def test_value_without_a_verdict_lifts_no_drain(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    node = world.nodes["cpu-0"]
    node.state |= {"DRAIN"}
    node.reason = "slurmstack:longcheck:cpu-memory: 500 MB/s"
    checks = {"cpu-memory": {"nodesets": ["cpu"], "fall": 0.15, "history": 20, "least": 5}}
    runner = world.runner("cpu-memory", checks=checks)
    runner.record(["cpu-0"], f"{triad(5000)}\nslurmstack: ended with 0\n")

    assert "DRAIN" in node.state


# --- Kills of the pod ----------------------------------------------------------------------------


def finished(world: World, check: str) -> int:
    """Restart the run until it completes, as Kubernetes does. Return the number of kills."""
    kills = 0
    while True:
        try:
            world.run(check, at_once=2)
        except Killed:
            kills += 1
            world.steps_to_live = None
            world.sleep(30)
        else:
            return kills


@pytest.mark.parametrize("check", ["cpu-memory", "network"])
def test_killed_run_neither_loses_nor_repeats_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    measure = slow("cpu-1") if check == "cpu-memory" else slow_link("cpu-1")
    names = [f"cpu-{n}" for n in range(3 if check == "cpu-memory" else 4)]
    calm = World(tmp_path / "calm", measure, *names)
    calm.duration = 15
    assert finished(calm, check) == 0
    expected = len(calm.jobs)
    values = {name: calm.values(check)[name] for name in names[:2]}
    write = files.replace

    point, kills = 0, 1
    while kills:
        world = World(tmp_path / str(point), measure, *names)
        world.duration = calm.duration
        monkeypatch.setattr(files, "replace", write)
        monkeypatch.setattr(files, "replace", world.killing_writes())
        world.steps_to_live = point
        kills = finished(world, check)

        asked = [job.target for job in world.jobs.values()]
        assert len(set(asked)) == len(asked) == expected, point
        measured = world.values(check)
        # The partner in the second measurement is any node that is free at that time.
        assert {n: measured[n] for n in names[:2]} == values, point
        assert sum(map(len, measured.values())) == sum(map(len, asked)), point
        assert world.nodes["cpu-1"].reason == calm.nodes["cpu-1"].reason, point
        drained = {name for name, node in world.nodes.items() if "DRAIN" in node.state}
        assert drained == {"cpu-1"}, point
        point += 1
    assert point > 30


def test_output_of_a_job_that_slurm_forgot_is_used(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    world.forgets_after = 60
    # Kill the pod directly after the second request, which submits the job. A step is before and
    # after each request.
    world.steps_to_live = 4
    with pytest.raises(Killed):
        world.run()
    world.steps_to_live = None
    for _ in range(100):
        world.sleep(60)
    world.run()

    assert len(world.jobs) == 1
    assert world.values() == {"cpu-0": [5000]}


def test_job_submission_with_a_lost_answer_is_not_repeated(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    serve = world._serve
    lost: list[str] = []

    def losing(user: str, method: str, path: str, body: object) -> object:
        answer = serve(user, method, path, body)
        if path == "job/submit" and not lost:
            lost.append(path)
            raise httpx.ReadTimeout("timed out")
        return answer

    world._serve = losing  # type: ignore[method-assign, assignment]
    world.run()

    assert lost
    assert len(world.jobs) == 1
    assert world.values() == {"cpu-0": [5000]}


def test_interrupted_run_of_other_nodes_is_finished_first(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0", "cpu-1")
    world.steps_to_live = 6
    with pytest.raises(Killed):
        world.run()
    world.steps_to_live = None
    world.run(nodes=["cpu-1"])

    assert [job.target for job in world.jobs.values()] == [("cpu-0",), ("cpu-1",)]
    assert world.values() == {"cpu-0": [5000], "cpu-1": [5000]}


def test_second_concurrent_run_of_a_check_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    with alone(world.series / "cpu-memory" / ".run.lock", wait=False):
        with pytest.raises(BusyError, match="cpu-memory: another run of this check is in progress"):
            world.run()
        world.run("network", ["cpu-0"])
    assert not world.jobs


def test_refused_job_ends_the_run_with_slurms_message(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    runner = world.runner("cpu-memory", user="nobody")
    runner._submitter = world.client("nobody")
    with pytest.raises(SlurmError, match="Invalid account"):
        runner.run()
    world.run()

    assert world.values() == {"cpu-0": [5000]}


def test_unknown_node_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0", "other-0")
    for name in ("cpu-7", "other-0"):
        with pytest.raises(ValueError, match=f"--node {name}: expected a Slurm node"):
            world.run(nodes=[name])


def test_broken_file_stops_the_run_and_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, good, "cpu-0")
    world.run()
    path = world.series / "cpu-memory" / "cpu-0.jsonl"
    path.write_text("{\n")
    with pytest.raises(ValueError, match=r"cpu-0\.jsonl: .*move this file away"):
        world.run()
    assert Series(world.series).nodes("cpu-memory") == ["cpu-0"]
