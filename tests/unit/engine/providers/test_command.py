"""Commands for other machines go by ssh to hosts that are known, and are run when they must be."""

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
# Stands in for ssh: keeps what it was told, and runs the command here.
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
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the last ssh's arguments, key and list of known hosts are kept."""
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


def test_a_command_is_run_with_its_input_and_what_it_prints_is_kept() -> None:
    outputs = created(create="cat; echo told >&2", stdin="a secret\n")

    assert (outputs["stdout"], outputs["stderr"]) == ("a secret", "told")


def test_input_arrives_whole_where_it_is_read_late() -> None:
    """A pipe holds 64 KiB; the rest can be written only later."""
    outputs = created(Operation(timeout=30), create="sleep 0.5; wc -c", stdin="x" * 200_000)

    assert outputs["stdout"] == "200000"


def test_ssh_speaks_to_the_one_host_whose_key_is_given(told: Path) -> None:
    created(create="true")
    arguments = (told / "arguments").read_text().splitlines()

    assert "StrictHostKeyChecking=yes" in arguments
    assert arguments[arguments.index("-F") + 1] == "/dev/null", "no settings of the user's"
    assert {"BatchMode=yes", "IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null"} <= {*arguments}
    assert arguments[-7:] == ["-p", "2222", "-l", "ubuntu", "--", "192.0.2.10", "true"]
    (alias,) = [word.partition("=")[2] for word in arguments if word.startswith("HostKeyAlias=")]
    assert (told / "known").read_text() == f"{alias} ssh-ed25519 AAAAC3Nza\n"


def test_the_private_key_is_on_no_command_line_and_gone_afterwards(told: Path) -> None:
    created(create="true")
    arguments = (told / "arguments").read_text()
    (path,) = [word[13:] for word in arguments.splitlines() if word.startswith("IdentityFile=")]

    assert "PRIVATE KEY" not in arguments
    assert stat.S_IMODE((told / "key").stat().st_mode) == 0o600
    assert (told / "key").read_text() == CONNECTION["privateKey"]
    assert not Path(path).exists()


def test_the_environment_is_sent_and_on_no_command_line(told: Path) -> None:
    outputs = created(create="echo $TOKEN", environment={"TOKEN": "abc"})

    assert outputs["stdout"] == "abc"
    assert "SendEnv=TOKEN" in (told / "arguments").read_text().splitlines()
    assert "abc" not in (told / "arguments").read_text()


def test_a_command_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(EngineError) as caught:
        created(create="echo one >&2; echo two >&2; exit 3")

    assert str(caught.value) == "ubuntu@192.0.2.10: one; two; exit code 3"


def test_a_host_that_is_not_reached_is_told_apart_from_a_command_that_fails() -> None:
    with pytest.raises(EngineError, match=r"Connection refused; ssh failed$"):
        created(create="echo 'connect: Connection refused' >&2; exit 255")


def test_a_run_that_is_stopped_ends_its_ssh() -> None:
    op = Operation()
    threading.Timer(0.3, op.cancelled.set).start()
    begun = time.monotonic()

    with pytest.raises(Cancelled):
        created(op, create="exec sleep 60")
    assert time.monotonic() - begun < 30


def test_a_command_that_takes_too_long_fails() -> None:
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
def test_an_update_runs_the_command_for_it_or_else_that_for_creation(
    given: Properties, stdout: str
) -> None:
    old = stored(inputs(), {"stdout": "before", "stderr": ""})

    assert PROVIDER.update(old, inputs(**given), Operation())["stdout"] == stdout


def test_what_was_printed_before_is_told_to_the_next_command_unless_it_is_not_wanted() -> None:
    old = stored(inputs(), {"stdout": "before", "stderr": ""})
    command = "echo ${PULUMI_COMMAND_STDOUT-nothing}"

    assert PROVIDER.update(old, inputs(create=command), Operation())["stdout"] == "before"
    without = inputs(create=command, addPreviousOutputInEnv=False)
    assert PROVIDER.update(old, without, Operation())["stdout"] == "nothing"


def test_a_delete_runs_the_command_for_it_as_it_was_stored(told: Path) -> None:
    PROVIDER.delete(stored(inputs(delete=f"cat >{told}/gone", stdin="bye")), Operation())

    assert (told / "gone").read_text() == "bye"


def test_a_delete_without_a_command_connects_to_nobody(told: Path) -> None:
    PROVIDER.delete(stored(inputs(create="true")), Operation())

    assert not (told / "arguments").exists()


# --- Plans -----------------------------------------------------------------------------------


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
def test_a_trigger_replaces_where_there_is_no_command_for_updates(
    before: Properties, after: Properties, changed: tuple[str, ...], replaces: tuple[str, ...]
) -> None:
    diff = PROVIDER.diff(stored(inputs(**before)), inputs(**after))

    assert (diff.changed, diff.replaces) == (changed, replaces)


def test_a_preview_connects_to_nobody_and_knows_no_output(told: Path) -> None:
    foreseen = PROVIDER.preview_outputs(TYPE, inputs(create="echo a"), None)

    assert (foreseen["stdout"], foreseen["stderr"]) == (UNKNOWN, UNKNOWN)
    assert not (told / "arguments").exists()


def test_how_to_log_in_and_what_is_printed_is_secret() -> None:
    assert PROVIDER.secret_outputs(TYPE) == {"connection", "stdout", "stderr"}


def test_of_a_creation_whose_end_nobody_saw_nothing_is_known() -> None:
    found = PROVIDER.read(TYPE, URN, "", inputs(), {})

    assert found is not None
    assert found[0] == ""


# --- Refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["host", "hostKey", "privateKey"])
def test_a_connection_without_host_or_keys_is_refused(name: str) -> None:
    less = {key: value for key, value in CONNECTION.items() if key != name}

    with pytest.raises(CheckError, match=rf"^connection\.{name}: is required"):
        PROVIDER.check(TYPE, URN, {}, {"connection": less})


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"connection": {**CONNECTION, "password": "x"}}, "connection.password"),
        ({"connection": {**CONNECTION, "proxy": {}}}, "connection.proxy"),
        ({"connection": CONNECTION, "interpreter": []}, "interpreter"),
        ({}, "connection"),
    ],
)
def test_what_this_engine_has_not_is_refused(given: Properties, path: str) -> None:
    with pytest.raises(CheckError) as caught:
        PROVIDER.check(TYPE, URN, {}, given)
    assert caught.value.property == path


def test_other_types_of_the_package_are_refused() -> None:
    with pytest.raises(EngineError, match="command:local:Command: not supported by this engine"):
        PROVIDER.check("command:local:Command", URN, {}, inputs())


def test_what_is_accepted_is_stored_as_it_was_given() -> None:
    given = inputs(create="true", triggers=[1], logging="stderr", environment={"A": "b"})

    assert PROVIDER.check(TYPE, URN, {}, given) == given
