"""Failures, their messages, and the recovery in the next run."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from engine.errors import EngineError, WrongPassphrase
from engine.events import Severity
from tests.unit.engine.programs.sandbox import PREAMBLE, Sandbox


def test_failed_resource_is_reported_and_its_dependents_are_skipped(sandbox: Sandbox) -> None:
    outcome = sandbox.up(
        'a = Thing("a", fail="create")\nThing("b", value=a.self)\npulumi.export("x", a.self)'
    )
    assert outcome.code == 1
    assert outcome.record.failures == {"a": "the world is full"}
    assert outcome.errors == ["the world is full"], "there must be no other error"
    assert sandbox.world.drain() == []
    assert "pending_operations" not in sandbox.state


def test_resources_created_before_a_failure_are_kept(sandbox: Sandbox) -> None:
    program = 'a = Thing("a")\nThing("b", value=a.self{})'
    assert sandbox.up(program.format(', fail="create"')).code == 1
    assert "a" in sandbox.stored
    sandbox.world.drain()
    assert sandbox.up(program.format("")).code == 0
    assert sandbox.world.drain() == ["create b"]


def test_deployment_deletes_nothing_after_a_failure(sandbox: Sandbox) -> None:
    sandbox.up('Thing("old")')
    sandbox.world.drain()
    assert sandbox.up('Thing("new", fail="create")').code == 1
    assert sandbox.world.drain() == []
    assert "old" in sandbox.stored


def test_resource_that_never_became_ready_is_updated_next_time(
    sandbox: Sandbox,
) -> None:
    assert sandbox.up('Thing("a", fail="half")').code == 1
    assert sandbox.stored["a"]["initErrors"] == ["it never became ready"]
    sandbox.world.drain()
    assert sandbox.preview('Thing("a", fail="half")').steps == [("update", "a")]
    assert sandbox.up('Thing("a")').code == 0
    assert sandbox.world.drain() == ["update a"]
    assert "initErrors" not in sandbox.stored["a"]


def test_failed_update_leaves_the_state_unchanged(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", value="1")')
    outcome = sandbox.up('Thing("a", value="2", fail="update")')
    assert outcome.errors == ["it does not want to change"]
    assert sandbox.stored["a"]["inputs"]["value"] == "1"


def test_failed_deletion_of_a_resource_keeps_its_dependencies(sandbox: Sandbox) -> None:
    sandbox.up('a = Thing("a")\nThing("b", value=a.self, fail="delete")')
    sandbox.world.drain()
    outcome = sandbox.destroy()
    assert outcome.errors == ["it does not want to go"]
    assert sandbox.world.drain() == []
    assert {"a", "b", "default", "sandbox-dev"} <= set(sandbox.stored)


def test_error_names_the_invalid_input(sandbox: Sandbox) -> None:
    outcome = sandbox.preview('Thing("a", value="bad")')
    assert outcome.code == 1
    assert outcome.errors == ["value: bad is not good; choose another"]


def test_duplicate_resource_name_is_refused(sandbox: Sandbox) -> None:
    outcome = sandbox.up('a = Thing("a")\nThing("a", Options(depends_on=a))')
    assert outcome.code == 1
    assert outcome.errors == [
        (
            "the program creates this resource twice; resources with the same type and parent need"
            " different names: rename one of them"
        )
    ]


def test_reason_of_an_aborted_program_is_one_line(sandbox: Sandbox) -> None:
    for program in (
        'raise pulumi.RunError("no such zone")',
        'import sys; sys.exit("no such zone")',
    ):
        outcome = sandbox.up(program)
        assert outcome.code == 1
        assert outcome.errors == ["no such zone"]


def test_traceback_shows_only_lines_of_the_program(sandbox: Sandbox) -> None:
    outcome = sandbox.up('Thing("a")\n1 / 0')
    (error,) = outcome.errors
    assert "ZeroDivisionError" in error
    assert "__main__.py" in error
    assert "runner.py" not in error


def test_crashing_program_deletes_nothing_and_keeps_the_outputs(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")\npulumi.export("x", 1)')
    sandbox.world.drain()
    assert sandbox.up("raise ValueError").code == 1
    assert sandbox.world.drain() == []
    assert sandbox.stored["sandbox-dev"]["outputs"] == {"x": 1}


def test_program_that_exits_early_deletes_nothing(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")')
    sandbox.world.drain()
    outcome = sandbox.up("import sys; sys.exit(0)")
    assert outcome.code == 1
    assert "ended early" in outcome.errors[0]
    assert sandbox.world.drain() == []


def test_killed_program_is_reported(sandbox: Sandbox) -> None:
    outcome = sandbox.up("import os; os.kill(os.getpid(), 9)")
    assert outcome.code == 1
    assert outcome.errors == ["the Pulumi program was killed by signal 9; read its output above"]


def test_output_and_logs_of_the_program_are_shown(sandbox: Sandbox) -> None:
    outcome = sandbox.up('print("to out")\npulumi.warn("careful")\npulumi.info("fyi")')
    assert (Severity.OUTPUT, "to out") in outcome.record.messages
    assert (Severity.WARNING, "careful") in outcome.record.messages
    assert (Severity.INFO, "fyi") in outcome.record.messages


def test_wrong_passphrase_is_refused_before_any_operation(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.up('Thing("a", value=pulumi.Output.secret("hush"))')
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open barley")
    sandbox.world.drain()
    with pytest.raises(WrongPassphrase):
        sandbox.up('Thing("b")')
    assert sandbox.world.drain() == []


def test_missing_passphrase_is_refused_before_any_operation(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    with pytest.raises(EngineError, match="PULUMI_CONFIG_PASSPHRASE"):
        sandbox.up('Thing("a")')
    assert sandbox.world.drain() == []
    assert sandbox.preview().code == 0, "a preview of a new stack must need no passphrase"


def test_error_names_the_unsupported_request(sandbox: Sandbox) -> None:
    for program, named in (
        ('Thing("a", Options(import_="x"))', "import"),
        ('pulumi.runtime.invoke("test:index:find", {})\n', "function test:index:find"),
    ):
        outcome = sandbox.up(program)
        assert outcome.code == 1
        assert named in outcome.errors[0]


def test_stack_with_an_unknown_layout_version_is_refused(sandbox: Sandbox) -> None:
    meta = sandbox.root / ".local/state/.pulumi/meta.yaml"
    meta.parent.mkdir(parents=True)
    meta.write_text("version: 9\n")
    with pytest.raises(EngineError, match=r"version 9 of the folder's layout is not supported"):
        sandbox.up("pass")


# -- interruptions ---------------------------------------------------------------------------------


def _interrupt(_name: str) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_update_stops_cleanly_and_can_be_repeated(
    sandbox: Sandbox, number: signal.Signals
) -> None:
    program = 'a = Thing("a")\nb = Thing("b", value=a.self, delay={})\nThing("c", value=b.self)'
    sandbox.world.on_create = lambda name: os.kill(os.getpid(), number) if name == "b" else None
    outcome = sandbox.up(program.format(30))
    assert outcome.code == 130
    assert outcome.record.failures == {"b": "cancelled"}
    assert sandbox.world.drain() == ["create a"]
    assert "pending_operations" not in sandbox.state
    assert not list((sandbox.root / ".local/state/.pulumi/locks").rglob("*.json"))
    sandbox.world.on_create = lambda _name: None
    assert sandbox.up(program.format(0)).code == 0
    assert sandbox.world.drain() == ["create b", "create c"]


def test_engine_waits_for_an_operation_that_ignores_the_interrupt(sandbox: Sandbox) -> None:
    def slow(_name: str) -> None:
        _interrupt(_name)
        threading.Event().wait(0.5)

    sandbox.world.on_create = slow
    outcome = sandbox.up('Thing("a")')
    assert outcome.code == 130
    assert "a" in sandbox.stored, "the operation created the resource, so the state must list it"


def _pend(sandbox: Sandbox, kind: str, resource: dict[str, object]) -> None:
    document = json.loads(sandbox.state_file.read_text())
    document["checkpoint"]["latest"]["pending_operations"] = [{"resource": resource, "type": kind}]
    sandbox.state_file.write_text(json.dumps(document))


def test_next_run_finds_a_resource_whose_create_was_interrupted(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")\nThing("b")')
    begun = sandbox.stored["b"]
    sandbox.up('Thing("a")')
    sandbox.world.things["b-2"] = dict(begun["inputs"])
    _pend(sandbox, "creating", {k: v for k, v in begun.items() if k not in ("id", "outputs")})
    sandbox.world.drain()
    assert sandbox.preview('Thing("a")\nThing("b")').steps == [("update", "b")]
    outcome = sandbox.up()
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == ["update b"]
    assert "pending_operations" not in sandbox.state


def test_next_run_repeats_an_interrupted_create_that_created_nothing(
    sandbox: Sandbox,
) -> None:
    sandbox.up('Thing("a")\nThing("b")')
    begun = sandbox.stored["b"]
    sandbox.up('Thing("a")')
    _pend(sandbox, "creating", {k: v for k, v in begun.items() if k not in ("id", "outputs")})
    sandbox.world.drain()
    assert sandbox.up('Thing("a")\nThing("b")').code == 0
    assert sandbox.world.drain() == ["create b"]


def test_next_run_repeats_an_interrupted_create_whose_id_is_unknown(
    sandbox: Sandbox,
) -> None:
    sandbox.world.tells_ids = False
    sandbox.up('Thing("a")\nThing("b")')
    begun = sandbox.stored["b"]
    sandbox.up('Thing("a")')
    sandbox.world.things["b-2"] = dict(begun["inputs"])
    _pend(sandbox, "creating", {k: v for k, v in begun.items() if k not in ("id", "outputs")})
    assert sandbox.up('Thing("a")\nThing("b")').code == 0
    assert sandbox.stored["b"]["inputs"]["label"] == begun["inputs"]["label"]
    assert "pending_operations" not in sandbox.state


def test_destroy_warns_about_an_interrupted_create_with_an_unknown_id(
    sandbox: Sandbox,
) -> None:
    sandbox.world.tells_ids = False
    sandbox.up('Thing("a")')
    begun = sandbox.stored["a"]
    _pend(sandbox, "creating", {k: v for k, v in begun.items() if k not in ("id", "outputs")})
    sandbox.write("pass")
    outcome = sandbox.destroy()
    assert outcome.code == 0
    assert any("but did not record its id" in text for _, text in outcome.record.messages)
    assert "pending_operations" not in sandbox.state


def test_destroy_deletes_a_resource_that_an_interrupted_run_created(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")\nThing("b")')
    begun = sandbox.stored["b"]
    sandbox.up('Thing("a")')
    sandbox.world.things["b-2"] = dict(begun["inputs"])
    _pend(sandbox, "creating", {k: v for k, v in begun.items() if k not in ("id", "outputs")})
    assert sandbox.destroy().code == 0
    assert sandbox.world.things == {}


def test_next_run_repeats_an_interrupted_update_of_a_resource(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", value="1")')
    _pend(sandbox, "updating", sandbox.stored["a"])
    sandbox.world.drain()
    assert sandbox.up().steps == [("update", "a")]
    assert sandbox.up().steps == []


def test_next_run_recreates_a_resource_that_an_interrupted_run_deleted(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")')
    sandbox.world.things.clear()
    _pend(sandbox, "deleting", sandbox.stored["a"])
    sandbox.world.drain()
    assert sandbox.up().code == 0
    assert sandbox.world.drain() == ["create a"]


def test_update_takes_over_the_lock_of_an_ended_process(sandbox: Sandbox) -> None:
    import socket

    locks = sandbox.root / ".local/state/.pulumi/locks/organization/sandbox/dev"
    locks.mkdir(parents=True)
    stale = locks / "stale.json"
    content = {"pid": 2**22 + 1, "username": "researcher", "hostname": socket.gethostname()}
    stale.write_text(json.dumps({**content, "timestamp": "2026-01-01T00:00:00Z"}))
    assert sandbox.up("pass").code == 0
    assert not stale.exists()


def test_update_stops_if_another_update_has_the_lock(sandbox: Sandbox) -> None:
    locks = sandbox.root / ".local/state/.pulumi/locks/organization/sandbox/dev"
    locks.mkdir(parents=True)
    held = locks / "held.json"
    content = {"pid": 1, "username": "researcher", "hostname": "elsewhere", "timestamp": "today"}
    held.write_text(json.dumps(content))
    with pytest.raises(
        EngineError, match=r"researcher@elsewhere \(process 1\) since today; .*delete"
    ):
        sandbox.up("pass")
    assert held.exists()
    assert sandbox.preview().code == 0, "a preview must ignore the lock"


def test_program_may_be_in_a_subdirectory_of_the_project(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: sandbox\nruntime: python\nmain: inner\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/helper.py").write_text("NAME = 'from-helper'\n")
    (tmp_path / "inner/__main__.py").write_text(PREAMBLE + "import helper\nThing(helper.NAME)\n")
    outcome = sandbox.up()
    assert outcome.code == 0, outcome.errors
    assert "from-helper" in sandbox.stored
