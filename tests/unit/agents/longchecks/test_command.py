"""The commands of `python3 -m agents.longchecks` print one line per result."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from agents.longchecks.__main__ import BAD, DONE, FAILED, NOTHING, UNUSABLE, main
from agents.longchecks.plan import in_order
from agents.longchecks.registry import CHECKS, END
from local.paths import ROOT
from tests.support.metrics import series as found_in
from tests.support.ports import free_port
from tests.unit.agents.longchecks.world import World, triad


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, lambda _: triad(5000), "cpu-0", "cpu-1")
    (tmp_path / "wanted.json").write_text(world.wanted().model_dump_json())
    return world


def call(world: World, *arguments: str) -> int:
    environment = {
        "LONG_CHECKS": str(world.series.with_name("wanted.json")),
        "SERIES": str(world.series),
        "OUTPUTS": str(world.outputs),
    }
    return main(arguments, environment, world.client, lambda: world.now, world.sleep)


def test_run_prints_one_line_per_result(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(world, "run", "cpu-memory") == DONE
    assert capsys.readouterr().out.splitlines() == [
        "cpu-0: good: 5000 MB/s",
        "cpu-1: good: 5000 MB/s",
    ]


def test_json_output_is_one_object(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    call(world, "run", "cpu-memory", "--node", "cpu-1", "--json")
    answer = json.loads(capsys.readouterr().out)
    (found,) = answer["records"]
    assert (found["nodes"], found["value"], found["verdict"]) == (["cpu-1"], 5000, "good")
    assert answer["bad"] == []


def test_exit_code_reports_a_bad_node(world: World) -> None:
    world.measure = lambda _: triad(1)
    assert call(world, "run", "cpu-memory") == BAD


def test_run_that_measures_nothing_fails(world: World) -> None:
    world.measure = lambda _: "no membw on the PATH"
    assert call(world, "run", "cpu-memory") == NOTHING


def test_run_succeeds_while_all_nodes_are_in_use(world: World) -> None:
    for node in world.nodes.values():
        node.user_until = world.now + 1_000_000
    assert call(world, "run", "cpu-memory") == DONE
    assert not world.jobs


def test_unavailable_slurm_fails_the_run(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(world, "_serve", away)
    assert call(world, "run", "cpu-memory") == FAILED
    assert "run this command again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "variable"), [("run", "LONG_CHECKS"), ("serve", "LONG_CHECKS")]
)
def test_missing_environment_variable_is_named(
    command: str, variable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [command] if command == "serve" else [command, "cpu-memory"]
    assert main(arguments, {}) == UNUSABLE
    assert f"environment variable {variable}: not set; run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run", "dcgm"),
            (
                "long check 'dcgm': is not enabled; enabled in 'long_checks.checks': cpu-memory, "
                "network; add 'dcgm' there and deploy"
            ),
        ),
        (("run", "cpu-memory", "--node", "gpu-0"), "--node gpu-0: expected a Slurm node"),
        (("record", "network", "--node", "cpu-0"), "--node: given 1 times, expected 2"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(
    world: World, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert call(world, *arguments) == UNUSABLE
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not world.jobs


def test_command_record_reads_a_manual_measurement_from_stdin(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{triad(4321)}\n{END} 0\n"))
    assert call(world, "record", "cpu-memory", "--node", "cpu-1") == DONE
    assert world.values() == {"cpu-1": [4321]}
    assert capsys.readouterr().out == "cpu-1: good: 4321 MB/s\n"


def test_command_history_lists_values_by_node_with_the_oldest_first(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    call(world, "run", "cpu-memory")
    call(world, "run", "cpu-memory", "--node", "cpu-1")
    capsys.readouterr()
    assert call(world, "history", "cpu-memory") == DONE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2:4] for line in lines] == [
        ["cpu-memory", "cpu-0:"],
        ["cpu-memory", "cpu-1:"],
        ["cpu-memory", "cpu-1:"],
    ]
    assert lines[0].startswith("2027-01-15 08:0")
    call(world, "history", "--node", "cpu-1", "--json")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["check"], one["node"], one["value"]) for one in found] == [
        ("cpu-memory", "cpu-1", 5000),
        ("cpu-memory", "cpu-1", 5000),
    ]


def test_command_serve_shows_the_newest_values_until_sigterm(world: World) -> None:
    call(world, "run", "cpu-memory")
    environment = {
        **os.environ,
        "LONG_CHECKS": str(world.series.with_name("wanted.json")),
        "SERIES": str(world.series),
        "PORT": str(free_port()),
    }
    url = f"http://127.0.0.1:{environment['PORT']}/metrics"
    command = (sys.executable, "-m", "agents.longchecks", "serve")
    with subprocess.Popen(command, env=environment) as serving:
        try:
            found = found_in(httpx.get(url, trust_env=False).content) if answers(url) else {}
        finally:
            serving.terminate()

    assert found['slurmstack_longcheck_value{check="cpu-memory",node="cpu-1"}'] == 5000
    assert serving.returncode == DONE


def answers(url: str) -> bool:
    """Wait until the server answers. Return whether it answers in time."""
    for _ in range(200):
        try:
            return httpx.get(url, trust_env=False).is_success
        except httpx.ConnectError:
            time.sleep(0.1)
    return False


def test_node_names_are_sorted_by_number() -> None:
    assert in_order(["cpu-10", "gpu-1", "cpu-9", "cpu-2"]) == ["cpu-2", "cpu-9", "cpu-10", "gpu-1"]


# --- The scripts ---------------------------------------------------------------------------------


def run_script(name: str, folder: Path, **programs: str) -> str:
    """Return the output of a check's script that runs with fake programs."""
    bin_ = folder / "bin"
    bin_.mkdir()
    for program, text in programs.items():
        (bin_ / program).write_text(f"#!/bin/bash\n{text}\n")
        (bin_ / program).chmod(0o755)
    done = subprocess.run(
        ["bash", "-s"],
        input=CHECKS[name].script(str(folder)),
        env={
            "PATH": f"{bin_}:{os.defpath}",
            "MEMORY_MIB": "4000",
            "GPUS": "8",
            "SECOND": "cpu-1",
            "SLURM_CPUS_ON_NODE": "2",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_every_script_is_valid_bash(name: str, tmp_path: Path) -> None:
    script = CHECKS[name].script("/var/log/x")
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_script_reports_a_missing_program_instead_of_a_value(name: str, tmp_path: Path) -> None:
    output = run_script(name, tmp_path)
    assert "on the PATH: install it in the jail" in output
    assert output.splitlines()[-1] == f"{END} 4"


def test_membw_gets_all_cpus_and_a_quarter_of_the_memory(
    tmp_path: Path,
) -> None:
    output = run_script("cpu-memory", tmp_path, membw='echo "args $*"; echo "triad 77 MB/s"')
    assert "args 2 1000" in output
    assert CHECKS["cpu-memory"].read(output).value == 77


def test_script_removes_only_old_outputs(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in ("old.out", "new.out", "old.txt"))
    for path in (old, new, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (0, 0))
    run_script("cpu-memory", tmp_path)
    assert not old.exists()
    assert new.exists()
    assert other.exists()


def test_output_of_membw_can_be_parsed(tmp_path: Path) -> None:
    source = ROOT / "images/worker/membw.c"
    program = tmp_path / "membw"
    flags = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O3", "-pthread")
    subprocess.run(["gcc", *flags, "-o", program, source], check=True)
    done = subprocess.run([program, "2", "24"], capture_output=True, text=True, check=True)
    assert CHECKS["cpu-memory"].parse(done.stdout).value > 0
    assert done.stdout.startswith("threads 2\narray 8 MB\n")
    for arguments in (("0", "3"), ("two", "3"), ("1",)):
        failed = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert failed.returncode == 1
