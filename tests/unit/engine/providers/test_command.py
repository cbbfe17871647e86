"""Remote commands run through ssh on known hosts, and only if necessary."""

import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engine.errors import Cancelled, CheckError, EngineError
from engine.providers import Operation, Resource, load
from engine.providers.command import TYPE
from engine.values import UNKNOWN, Properties

PROVIDER = load("command", {}, preview=False)
URN = "urn:pulumi:dev::test::command:remote:Command::one"
CONNECTION: dict[str, Any] = {
    "host": "192.0.2.10",
    "port": 2222,
    "user": "ubuntu",
    "privateKey": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
    "hostKey": "ssh-ed25519 AAAAC3Nza",
}
SSH = """#!/bin/bash
# Replaces ssh: records its arguments, and runs the command on this machine.
printf '%s\\n' "$@" >"$TOLD/arguments"
for word; do
    case $word in
        IdentityFile=*) cp --preserve=mode "${word#*=}" "$TOLD/key" ;;
        UserKnownHostsFile=*) cp "${word#*=}" "$TOLD/known" ;;
    esac
done
exec bash -c "${!#}"
"""


@pytest.fixture(autouse=True)
def ssh_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory with the arguments, key and known hosts of the last ssh."""
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path))
    return tmp_path


def inputs(**given: Any) -> Properties:
    return {"connection": CONNECTION, **given}


def stored(given: Properties, outputs: Properties | None = None) -> Resource:
    return Resource(URN, TYPE, "one", "1", given, {**given, **(outputs or {})})


def created(op: Operation | None = None, **given: Any) -> Properties:
    return PROVIDER.create(TYPE, URN, inputs(**given), op or Operation())[1]


# --- Running ---------------------------------------------------------------------------------


def test_command_gets_stdin_and_its_output_is_stored() -> None:
    outputs = created(create="cat; echo told >&2", stdin="a secret\n")

    assert (outputs["stdout"], outputs["stderr"]) == ("a secret", "told")


def test_slow_command_gets_all_of_its_input() -> None:
    """A pipe buffers 64 KiB, so the engine must write the remaining input later."""
    outputs = created(Operation(timeout=30), create="sleep 0.5; wc -c", stdin="x" * 200_000)

    assert outputs["stdout"] == "200000"


def test_ssh_accepts_only_the_given_host_key(ssh_files: Path) -> None:
    created(create="true")
    arguments = (ssh_files / "arguments").read_text().splitlines()

    assert "StrictHostKeyChecking=yes" in arguments
    assert arguments[arguments.index("-F") + 1] == "/dev/null", "ssh must ignore user settings"
    assert {"BatchMode=yes", "IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null"} <= {*arguments}
    assert arguments[-7:] == ["-p", "2222", "-l", "ubuntu", "--", "192.0.2.10", "true"]
    (alias,) = [word.partition("=")[2] for word in arguments if word.startswith("HostKeyAlias=")]
    assert (ssh_files / "known").read_text() == f"{alias} ssh-ed25519 AAAAC3Nza\n"


def test_private_key_file_is_removed_after_the_command(ssh_files: Path) -> None:
    created(create="true")
    arguments = (ssh_files / "arguments").read_text()
    (path,) = [word[13:] for word in arguments.splitlines() if word.startswith("IdentityFile=")]

    assert "PRIVATE KEY" not in arguments
    assert stat.S_IMODE((ssh_files / "key").stat().st_mode) == 0o600
    assert (ssh_files / "key").read_text() == CONNECTION["privateKey"]
    assert not Path(path).exists()


def test_environment_is_not_on_the_command_line(ssh_files: Path) -> None:
    outputs = created(create="echo $TOKEN", environment={"TOKEN": "abc"})

    assert outputs["stdout"] == "abc"
    assert "SendEnv=TOKEN" in (ssh_files / "arguments").read_text().splitlines()
    assert "abc" not in (ssh_files / "arguments").read_text()


def test_failed_command_is_reported_in_one_line() -> None:
    with pytest.raises(EngineError) as caught:
        created(create="echo one >&2; echo two >&2; exit 3")

    assert str(caught.value) == "ubuntu@192.0.2.10: one; two; exit code 3"


def test_error_distinguishes_an_unreachable_host_from_a_failed_command() -> None:
    with pytest.raises(EngineError, match=r"Connection refused; ssh failed$"):
        created(create="echo 'connect: Connection refused' >&2; exit 255")


def test_cancelled_command_ends_its_ssh_process() -> None:
    op = Operation()
    threading.Timer(0.3, op.cancelled.set).start()
    started = time.monotonic()

    with pytest.raises(Cancelled):
        created(op, create="exec sleep 60")
    assert time.monotonic() - started < 30


def test_command_that_exceeds_its_timeout_fails() -> None:
    with pytest.raises(EngineError, match=r"timed out after 0\.1 s"):
        created(Operation(timeout=0.1), create="exec sleep 60")


# --- Updates and deletes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "stdout"),
    [
        ({"create": "echo made", "update": "echo changed"}, "changed"),
        ({"create": "echo made"}, "made"),
        ({"delete": "echo gone"}, "before"),
    ],
)
def test_update_runs_the_update_command_or_else_the_create_command(
    given: Properties, stdout: str
) -> None:
    old = stored(inputs(), {"stdout": "before", "stderr": ""})

    assert PROVIDER.update(old, inputs(**given), Operation())["stdout"] == stdout


def test_next_command_gets_the_previous_output_unless_disabled() -> None:
    old = stored(inputs(), {"stdout": "before", "stderr": ""})
    command = "echo ${PULUMI_COMMAND_STDOUT-nothing}"

    assert PROVIDER.update(old, inputs(create=command), Operation())["stdout"] == "before"
    without = inputs(create=command, addPreviousOutputInEnv=False)
    assert PROVIDER.update(old, without, Operation())["stdout"] == "nothing"


def test_delete_runs_the_delete_command_from_the_state(ssh_files: Path) -> None:
    PROVIDER.delete(stored(inputs(delete=f"cat >{ssh_files}/gone", stdin="bye")), Operation())

    assert (ssh_files / "gone").read_text() == "bye"


def test_resource_without_a_delete_command_is_deleted_without_a_connection(ssh_files: Path) -> None:
    PROVIDER.delete(stored(inputs(create="true")), Operation())

    assert not (ssh_files / "arguments").exists()


# --- Previews and diffs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "changed", "replaces"),
    [
        ({"create": "a"}, {"create": "a"}, (), ()),
        ({"create": "a"}, {"create": "b"}, ("create",), ()),
        ({"triggers": [1]}, {"triggers": [2]}, ("triggers[0]",), ("triggers[0]",)),
        ({"triggers": [1]}, {"triggers": [UNKNOWN]}, ("triggers[0]",), ("triggers[0]",)),
        ({"triggers": [1], "update": "u"}, {"triggers": [2], "update": "u"}, ("triggers[0]",), ()),
    ],
)
def test_changed_trigger_replaces_the_resource_if_no_update_command_exists(
    before: Properties, after: Properties, changed: tuple[str, ...], replaces: tuple[str, ...]
) -> None:
    diff = PROVIDER.diff(stored(inputs(**before)), inputs(**after))

    assert (diff.changed, diff.replaces) == (changed, replaces)


def test_preview_makes_no_connection_and_shows_unknown_output(ssh_files: Path) -> None:
    outputs = PROVIDER.preview_outputs(TYPE, inputs(create="echo a"), None)

    assert (outputs["stdout"], outputs["stderr"]) == (UNKNOWN, UNKNOWN)
    assert not (ssh_files / "arguments").exists()


def test_connection_and_output_are_marked_as_secret() -> None:
    assert PROVIDER.secret_outputs(TYPE) == {"connection", "stdout", "stderr"}


def test_provider_reports_no_id_for_an_interrupted_create() -> None:
    found = PROVIDER.read(TYPE, URN, "", inputs(), {})

    assert found is not None
    assert found[0] == ""


# --- Refused inputs --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["host", "hostKey", "privateKey"])
def test_connection_without_a_host_or_keys_is_refused(name: str) -> None:
    incomplete = {key: value for key, value in CONNECTION.items() if key != name}

    with pytest.raises(CheckError, match=rf"^connection\.{name}: is required"):
        PROVIDER.check(TYPE, URN, {}, {"connection": incomplete})


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"connection": {**CONNECTION, "password": "x"}}, "connection.password"),
        ({"connection": {**CONNECTION, "proxy": {}}}, "connection.proxy"),
        ({"connection": CONNECTION, "interpreter": []}, "interpreter"),
        ({}, "connection"),
    ],
)
def test_unsupported_inputs_of_a_command_are_refused(given: Properties, path: str) -> None:
    with pytest.raises(CheckError) as caught:
        PROVIDER.check(TYPE, URN, {}, given)
    assert caught.value.property == path


def test_other_resource_types_of_the_package_are_refused() -> None:
    with pytest.raises(
        EngineError, match="command:local:Command: type not supported by this engine"
    ):
        PROVIDER.check("command:local:Command", URN, {}, inputs())


def test_valid_inputs_are_stored_unchanged() -> None:
    given = inputs(create="true", triggers=[1], logging="stderr", environment={"A": "b"})

    assert PROVIDER.check(TYPE, URN, {}, given) == given
