"""The engine's command line: its output, its options and its exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from local.paths import ROOT
from tests.unit.engine.programs.command import Command

PROGRAM = """
import pulumi
import pulumi_random as random

pet = random.RandomPet("pet", length={length})
pulumi.export("pet", pet.id)
pulumi.export("key", random.RandomPassword("key", length=8).result)
"""

RELEASE = """
import json
import pulumi
import pulumi_kubernetes as k8s

nowhere = {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}
context = {"name": "nowhere", "context": {"cluster": "nowhere"}}
kubeconfig = {"clusters": [nowhere], "contexts": [context], "current-context": "nowhere"}
provider = k8s.Provider("kubernetes", kubeconfig=json.dumps(kubeconfig))
k8s.helm.v3.Release(
    "network",
    name="network",
    chart="network",
    repository_opts={"repo": "https://charts.example.org"},
    opts=pulumi.ResourceOptions(provider=provider),
)
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    (tmp_path / "Pulumi.yaml").write_text("name: web\nruntime: python\n")
    command = Command(tmp_path)
    command.write(PROGRAM.format(length=2))
    return command


def test_up_preview_and_destroy_work_through_the_command(command: Command) -> None:
    up = command("up", "--yes")
    assert up.returncode == 0, up.stderr
    assert re.search(r"^\+ 3 created \(done in [\d.]+ s\)$", up.stdout, re.MULTILINE)
    assert " + random:index/randomPet:RandomPet pet created" in up.stdout
    assert "[secret]" in up.stdout

    assert command("preview", "--expect-no-changes").returncode == 0

    pet = command("stack", "output", "pet").stdout.strip()
    assert re.fullmatch(r"\w+-\w+", pet)
    assert command("stack", "output", "key").stdout.strip() == "[secret]"
    key = command("stack", "output", "key", "--show-secrets").stdout.strip()
    assert len(key) == 8
    outputs = json.loads(command("stack", "output", "--json", "--show-secrets").stdout)
    assert outputs == {"pet": pet, "key": key}

    export = json.loads(command("stack", "export").stdout)
    assert export["version"] == 3
    assert key not in json.dumps(export)
    assert key in command("stack", "export", "--show-secrets").stdout

    command.write(PROGRAM.format(length=3))
    changed = command("preview", "--expect-no-changes")
    assert changed.returncode == 1
    assert "length: 2 => 3  (forces replacement)" in changed.stdout
    assert (
        "error: --expect-no-changes: 1 resources change; review the changes above" in changed.stderr
    )

    assert command("destroy", "--yes").returncode == 0
    assert json.loads(command("stack", "export").stdout)["deployment"].get("resources") is None


def test_json_option_prints_only_json(command: Command) -> None:
    document = json.loads(command("up", "--yes", "--json").stdout)
    assert document["result"] == "succeeded"
    assert document["changes"] == {"create": 3}
    assert document["outputs"]["key"] == "[secret]"


def test_up_and_destroy_require_yes_if_there_is_no_terminal(command: Command) -> None:
    for verb in ("up", "destroy"):
        refused = command(verb)
        assert refused.returncode == 1
        assert (
            refused.stderr
            == "error: cannot ask for confirmation without a terminal or with --json; pass --yes,"
            " to run without a question\n"
        )
        assert refused.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stack", "output", "nonsense"), "error: output 'nonsense': no such output"),
        (("stack", "export"), None),
    ],
)
def test_wrong_arguments_are_reported_in_one_line(
    command: Command, arguments: tuple[str, ...], message: str | None
) -> None:
    without_state = command(*arguments)
    assert without_state.returncode == 1
    assert ": no state of this stack in" in without_state.stderr
    assert without_state.stderr.count("\n") == 1
    if message:
        assert command("up", "--yes").returncode == 0
        answer = command(*arguments)
        assert answer.stderr.startswith(message)
        assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("number", ["abc", "0", "-1"])
def test_number_of_operations_must_be_positive(command: Command, number: str) -> None:
    refused = command("up", f"--parallel={number}")

    assert refused.returncode == 2
    assert f"'{number}': expected a whole number of 1 or more" in refused.stderr


def test_wrong_passphrase_is_reported_in_one_line(command: Command) -> None:
    assert command("up", "--yes").returncode == 0
    command.environment["PULUMI_CONFIG_PASSPHRASE"] = "open barley"
    for arguments in (("preview",), ("up", "--yes"), ("stack", "output", "--show-secrets")):
        answer = command(*arguments)
        assert answer.returncode == 1
        assert answer.stderr.startswith("error: incorrect passphrase")
        assert answer.stderr.count("\n") == 1
    assert command("stack", "output").returncode == 0, (
        "output that hides secrets must need no passphrase"
    )


def test_second_interrupt_kills_a_program_that_ignores_the_first_one(
    command: Command, tmp_path: Path
) -> None:
    command.write(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        command.arguments("up", "--yes"),
        cwd=ROOT,
        env=command.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = iter(process.stdout.readline, "")
        assert any(line.strip() == "deaf" for line in lines)
        process.send_signal(signal.SIGINT)
        assert any("press Ctrl-C again to exit immediately" in line for line in lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 130
        assert "the next run checks the operations that were" in process.stderr.read()
    assert not list(tmp_path.rglob("locks/**/*.json")), "the lock must be released"


def test_program_ends_when_the_engine_is_killed(command: Command) -> None:
    command.write("import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        command.arguments("preview"),
        cwd=ROOT,
        env=command.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid = next(int(line.split()[1]) for line in process.stdout if line.startswith("pid"))
        process.kill()
        process.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_helm_release_can_be_previewed_offline_but_not_deployed(
    command: Command,
) -> None:
    command.write(RELEASE)

    preview = command("preview")
    up = command("up", "--yes")

    assert preview.returncode == 0, preview.stderr
    assert "+ kubernetes:helm.sh/v3:Release network" in preview.stdout
    assert up.returncode == 1
    reported = [line for line in up.stderr.splitlines() if "Helm releases" in line]
    assert len(reported) == 1, up.stderr
    assert reported[0].endswith("deploy this stack with the `pulumi` command")
