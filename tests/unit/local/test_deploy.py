"""The commands of a deploy, their environment, and the stack file, which must not change."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from local.deploy import commands, committed_file_kept, environment, forget, main, run
from local.paths import ROOT
from plans import REFUSED

STACK_FILE = """config:
  slurmstack:cluster_name: dev
  slurmstack:cluster: {kind: existing}
  slurmstack:protect_data: false
"""
REWRITTEN = STACK_FILE.replace("false", '"false"') + "encryptionsalt: v1:abc\n"
"""The stack file after the `pulumi` command wrote it."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".local/dev").mkdir(parents=True)
    (tmp_path / ".local/dev/passphrase").write_text("secret")
    (tmp_path / "Pulumi.dev.yaml").write_text(STACK_FILE)
    return tmp_path


def test_local_stack_gets_a_state_directory_and_a_passphrase(project: Path) -> None:
    assert environment("dev", project, {"HOME": "/h"}) == {
        "HOME": "/h",
        "PULUMI_BACKEND_URL": f"file://{project}/.local/state",
        "PULUMI_CONFIG_PASSPHRASE_FILE": f"{project}/.local/dev/passphrase",
    }


def test_environment_of_the_operator_takes_precedence(project: Path) -> None:
    outer = {"PULUMI_BACKEND_URL": "s3://states", "PULUMI_CONFIG_PASSPHRASE": "mine"}

    assert environment("dev", project, outer) == outer


def test_other_stacks_use_only_the_environment_of_the_operator(project: Path) -> None:
    assert environment("prod", project, {"HOME": "/h"}) == {"HOME": "/h"}


@pytest.mark.parametrize(("verb", "asks"), [("up", True), ("destroy", True), ("preview", False)])
@pytest.mark.parametrize("engine", ["embedded", "pulumi"])
def test_only_commands_that_change_the_stack_get_the_option_yes(
    verb: str, asks: bool, engine: str
) -> None:
    last = commands(verb, "dev", engine, ["--json"], "python")[-1]

    assert ("--yes" in last) is asks
    assert last[-1] == "--json"
    assert verb in last


@pytest.mark.parametrize("engine", ["embedded", "pulumi"])
def test_update_with_a_policy_pack_includes_a_preview(engine: str) -> None:
    packs = ["policy", "site/policy"]
    judged = ["--policy-pack", "policy", "--policy-pack", "site/policy"]

    for verb in ("up", "preview"):
        last = commands(verb, "dev", engine, ["--json"], "python", packs)[-1]
        assert last[-5:] == [*judged, "--json"]
        assert "--skip-preview" not in last
    destroy = commands("destroy", "dev", engine, [], "python", packs)[-1]
    assert "--policy-pack" not in destroy, "a deleted resource violates no policy"


def test_policy_of_this_checkout_judges_the_program_of_another_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulumi = tmp_path / "pulumi"
    pulumi.write_text(f'#!/bin/sh\necho "$PWD $*" >>{tmp_path}/asked\n')
    pulumi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    change = tmp_path / "change"
    change.mkdir()
    (change / "Pulumi.gpu.yaml").write_text(STACK_FILE)

    words = ["--stack", "gpu", "--engine", "pulumi", "--policy-pack", "policy"]
    assert main(["preview", *words, "--program", str(change), "--json"]) == 0

    assert (tmp_path / "asked").read_text().splitlines() == [
        f"{ROOT} stack select --create gpu --cwd {change}",
        f"{ROOT} preview --stack gpu --cwd {change} --policy-pack {ROOT / 'policy'} --json",
    ]


def test_preview_with_policies_shows_what_users_notice_and_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The JSON of the `pulumi` command contains no violations, so a second preview shows them."""
    step = {
        "op": "update",
        "urn": "urn:pulumi:gpu::slurmstack::kubernetes:core/v1:ConfigMap::users-keys",
        "oldState": {"custom": True, "inputs": {"data": {"a": "1"}}},
        "newState": {"custom": True, "inputs": {"data": {"a": "2"}}},
    }
    (tmp_path / "document").write_text(json.dumps({"steps": [step], "changeSummary": {"same": 7}}))
    pulumi = tmp_path / "pulumi"
    pulumi.write_text(
        f"""#!/bin/sh
case "$*" in
*select*) ;;
*--json*) cat {tmp_path}/document ;;
*--policy-pack*) echo "a violation"; exit 1 ;;
esac
"""
    )
    pulumi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    status = main(["preview", "--stack", "gpu", "--engine", "pulumi", "--policy-pack", "policy"])

    shown = capfd.readouterr().out
    assert status == 1
    assert "SSH keys of users change" in shown
    assert shown.index("SSH keys") < shown.index("a violation")


@pytest.mark.parametrize("rotations", ["", '"2026-01-02T00:00:00Z"'])
def test_up_does_not_remove_an_authentication_key_in_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    rotations: str,
) -> None:
    name = f"auth-password-{int(datetime(2026, 1, 2, tzinfo=UTC).timestamp())}"
    resource = {"urn": f"urn:pulumi:gpu::slurmstack::random:index/randomPassword::{name}"}
    (tmp_path / "state").write_text(json.dumps({"deployment": {"resources": [resource]}}))
    pulumi = tmp_path / "pulumi"
    pulumi.write_text(
        f"""#!/bin/sh
case "$*" in
*export*) cat {tmp_path}/state ;;
up*) echo "it deploys" ;;
esac
"""
    )
    pulumi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    auth = f"  slurmstack:auth: {{rotations: [{rotations}]}}\n"
    (tmp_path / "Pulumi.gpu.yaml").write_text((ROOT / "Pulumi.gpu.yaml").read_text() + auth)

    status = main(["up", "--stack", "gpu", "--engine", "pulumi", "--program", str(tmp_path)])

    captured = capfd.readouterr()
    if rotations:
        assert (status, captured.out) == (0, "it deploys\n")
    else:
        assert (status, captured.out) == (REFUSED, "")
        assert "refused: auth.rotations: 2026-01-02T00:00:00Z: pods still use" in captured.err


def test_embedded_engine_can_run_the_program_of_another_checkout(tmp_path: Path) -> None:
    (asked,) = commands("preview", "gpu", "embedded", [], "python", ["/base/policy"], tmp_path)

    assert asked[:4] == ["python", "-m", "engine", "preview"]
    assert asked[4:8] == ["--stack", "gpu", "--cwd", str(tmp_path)]
    assert asked[8:] == ["--policy-pack", "/base/policy"]


def test_changes_by_pulumi_to_a_committed_file_are_reverted(project: Path) -> None:
    path = project / "Pulumi.dev.yaml"

    with committed_file_kept("dev", project):
        path.write_text(REWRITTEN)

    assert path.read_text() == STACK_FILE


def test_concurrent_edit_of_the_stack_file_is_kept(project: Path) -> None:
    path = project / "Pulumi.dev.yaml"
    edited = STACK_FILE + "  slurmstack:namespace: other\n"

    with committed_file_kept("dev", project):
        path.write_text(edited + "encryptionsalt: v1:abc\n")

    assert path.read_text() == edited


def test_salt_of_a_stack_that_is_not_local_is_kept(project: Path) -> None:
    path = project / "Pulumi.prod.yaml"
    path.write_text(STACK_FILE)

    with committed_file_kept("prod", project):
        path.write_text(STACK_FILE + "encryptionsalt: v1:abc\n")

    assert "encryptionsalt" in path.read_text()


def test_forget_removes_one_stack_and_its_history(project: Path) -> None:
    state = project / ".local/state/.pulumi"
    for stack in ("dev", "other"):
        for folder in (f"history/slurmstack/{stack}", f"backups/slurmstack/{stack}"):
            (state / folder).mkdir(parents=True)
        (state / "stacks/slurmstack").mkdir(parents=True, exist_ok=True)
        for ending in ("json", "json.bak", "json.attrs"):
            (state / f"stacks/slurmstack/{stack}.{ending}").touch()

    forget("dev", project)

    assert sorted(path.name for path in state.rglob("*") if "dev" in path.name) == []
    assert len([path for path in state.rglob("other*") if path.is_file()]) == 3


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_only_the_last_command_writes_to_standard_output(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    programs = [python("print('Created stack')"), python("print('{}')")]

    assert run(programs, tmp_path, {}) == 0
    assert capfd.readouterr() == ("{}\n", "Created stack\n")


def test_program_reading_the_output_starts_only_after_earlier_commands_succeed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reader = python("import sys; print('read', sys.stdin.read())")
    fails, prints = python("raise SystemExit(4)"), python("print('plan')")

    assert run([fails, prints], tmp_path, {}, reader) == 4
    assert capfd.readouterr().out == ""
    assert run([prints, prints], tmp_path, {}, reader) == 0
    assert capfd.readouterr().out == "read plan\n\n"
    assert run([python("print('half'); raise SystemExit(1)")], tmp_path, {}, reader) == 1
    assert capfd.readouterr().out == "read half\n\n", (
        "the program must get the output, because the output says why the command failed"
    )


@pytest.mark.parametrize("verb", ["up", "preview"])
@pytest.mark.parametrize("engine", ["pulumi", "embedded"])
def test_stack_without_a_file_is_refused_before_the_engine_runs(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    engine: str,
) -> None:
    """`pulumi stack select --create` would otherwise create the missing file."""
    ends = [0]
    monkeypatch.setattr("local.deploy.run", lambda *_: ends.pop())
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/pulumi")
    words = [verb, "--stack", "lab", "--engine", engine, "--program", str(project)]

    assert main(words) == 1
    assert capsys.readouterr().err == (
        "error: no stack 'lab': Pulumi.lab.yaml does not exist; existing stacks: dev\n"
    )
    assert ends, "the engine must not run"
    assert main([*words, "--", "--config-file", "lab.yaml"]) == 0


def test_error_of_a_failed_preview_is_printed_once(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["preview", "--engine", "embedded", "--program", str(project)]) != 0

    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: no Pulumi.yaml in ")


@pytest.mark.parametrize("arguments", [["up", "--json"], ["down", "--markdown"]])
def test_only_preview_accepts_json_and_markdown(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert (
        "--json and --markdown are valid only for the command `preview`" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("codes", "status"),
    [((0, 0), 0), ((REFUSED, 0), REFUSED), ((REFUSED, 1), 1), ((0, 1), 1), ((1,), 1)],
)
def test_refused_preview_also_shows_violations_of_policies_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], status: int
) -> None:
    left = list(codes)
    (tmp_path / "Pulumi.dev.yaml").write_text(STACK_FILE)
    monkeypatch.setattr("local.deploy.run", lambda *_: left.pop(0))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/pulumi")

    arguments = ["preview", "--engine", "pulumi", "--policy-pack", "policy"]
    assert main([*arguments, "--program", str(tmp_path)]) == status
    assert left == []
