"""The life of a stack, from the first update to its destruction."""

from __future__ import annotations

import threading

from engine.values import Secret
from tests.unit.engine.programs.sandbox import Sandbox

TWO = """
a = Thing("a", value="1")
b = Thing("b", value=a.self)
pulumi.export("b", b.value)
"""


def test_update_creates_resources_after_their_dependencies(sandbox: Sandbox) -> None:
    outcome = sandbox.up(TWO)
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == ["create a", "create b"]
    assert outcome.counts == {"create": 3}, "the engine must not count default providers"
    assert outcome.outputs == {"b": "a-1"}


def test_second_preview_and_update_show_no_changes(sandbox: Sandbox) -> None:
    sandbox.up(TWO)
    sandbox.world.drain()
    assert sandbox.preview(expect_no_changes=True).code == 0
    assert sandbox.up().steps == []
    assert sandbox.world.drain() == []


def test_preview_changes_no_resource_and_writes_no_file(sandbox: Sandbox) -> None:
    outcome = sandbox.preview(TWO)
    assert outcome.code == 0, outcome.errors
    assert [step for step in outcome.steps if step[0] == "create"] == [
        ("create", "sandbox-dev"),
        ("create", "a"),
        ("create", "b"),
    ]
    assert sandbox.world.things == {}
    assert not sandbox.state_file.exists()


def test_preview_that_expects_no_changes_fails_if_there_are_changes(sandbox: Sandbox) -> None:
    sandbox.up(TWO)
    assert sandbox.preview(TWO.replace('"1"', '"2"'), expect_no_changes=True).code == 1


def test_resource_deleted_by_hand_is_created_again_only_with_refresh(sandbox: Sandbox) -> None:
    sandbox.up(TWO)
    sandbox.world.drain()
    del sandbox.world.things["a-1"]

    assert sandbox.up().steps == []
    assert sandbox.preview(refresh=True).steps == [("create", "a"), ("update", "b")]
    assert sandbox.up(refresh=True).code == 0
    assert sandbox.world.drain() == ["create a", "update b"]
    assert sandbox.up(refresh=True).steps == []


def test_edit_updates_a_resource_in_place_and_shows_the_change(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", value="1")')
    sandbox.world.drain()
    preview = sandbox.preview('Thing("a", value="2")')
    change = next(step.changes for step in preview.record.seen if step.changes)[0]
    assert (change.path, change.old, change.new) == ("value", '"1"', '"2"')
    outcome = sandbox.up()
    assert outcome.steps == [("update", "a")]
    assert sandbox.world.drain() == ["update a"]
    assert sandbox.stored["a"]["inputs"]["value"] == "2"


def test_dependents_are_deleted_before_the_resources_that_they_use(sandbox: Sandbox) -> None:
    sandbox.up(
        'a = Thing("a")\nb = Thing("b", value=a.self)\nc = Thing("c", opts=Options(depends_on=b))'
    )
    sandbox.world.drain()
    outcome = sandbox.up("pass")
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == ["delete c", "delete b", "delete a"]
    assert set(sandbox.stored) == {"sandbox-dev"}, (
        "the engine must also delete the default provider"
    )


def test_children_are_deleted_before_their_parents(sandbox: Sandbox) -> None:
    sandbox.up('g = Group("g")\nt = Thing("t", Options(parent=g))\nThing("u", Options(parent=t))')
    sandbox.world.drain()
    outcome = sandbox.destroy()
    assert [name for op, name in outcome.steps if op == "delete"] == ["u", "t", "g", "sandbox-dev"]
    assert sandbox.world.things == {}
    assert sandbox.state.get("resources", []) == []


def test_destroyed_stack_can_be_destroyed_and_created_again(sandbox: Sandbox) -> None:
    sandbox.up(TWO)
    assert sandbox.destroy().code == 0
    assert sandbox.destroy().code == 0
    assert sandbox.up().counts == {"create": 3}


def test_independent_resources_are_created_in_parallel(sandbox: Sandbox) -> None:
    together = threading.Barrier(3, timeout=20)

    def meet(_name: str) -> None:
        together.wait()

    sandbox.world.on_create = meet
    assert sandbox.up('for n in "abc":\n    Thing(n)').code == 0


def test_parallel_option_limits_the_number_of_concurrent_operations(sandbox: Sandbox) -> None:
    running, most = [0], [0]
    lock = threading.Lock()

    def count(_name: str) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.05)
        with lock:
            running[0] -= 1

    sandbox.world.on_create = count
    assert sandbox.up('for n in range(6):\n    Thing(f"t{n}")', parallel=2).code == 0
    assert most[0] == 2


def test_secrets_are_encrypted_in_state_and_marked_in_outputs(sandbox: Sandbox) -> None:
    outcome = sandbox.up(
        """
        a = Thing("a", value=pulumi.Output.secret("hush-input"))
        b = Thing("b", value="open", opts=Options(additional_secret_outputs=["value"]))
        pulumi.export("password", a.password)
        pulumi.export("derived", a.value.apply(lambda v: v + "!"))
        pulumi.export("marked", b.value)
        """
    )
    assert outcome.code == 0, outcome.errors
    assert isinstance(outcome.outputs["password"], Secret)
    assert outcome.outputs["derived"] == Secret("hush-input!")
    assert outcome.outputs["marked"] == Secret("open")
    written = [p.read_text() for p in sandbox.root.rglob("*.json*") if p.is_file()]
    assert written
    assert not any("hush" in text for text in written), "no file may contain a secret in plain text"
    assert sandbox.preview(expect_no_changes=True).code == 0


def test_state_files_are_readable_only_by_the_owner(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")')
    assert sandbox.state_file.stat().st_mode & 0o077 == 0


def test_each_update_adds_an_entry_to_the_history(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")')
    sandbox.destroy()
    history = sandbox.root / ".local/state/.pulumi/history/sandbox/dev"
    assert len(list(history.glob("*.history.json"))) == 2
    assert len(list(history.glob("*.checkpoint.json"))) == 2


def test_program_reads_the_config_of_the_stack(sandbox: Sandbox) -> None:
    sandbox.config("config:\n  sandbox:size: 3\n  sandbox:shape:\n    sides: 4\n")
    outcome = sandbox.up(
        """
        config = pulumi.Config()
        pulumi.export("size", config.require_int("size"))
        pulumi.export("shape", config.require_object("shape"))
        """
    )
    assert outcome.outputs == {"size": 3, "shape": {"sides": 4}}


def test_error_names_a_missing_config_value_and_nothing_is_deleted(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")')
    sandbox.world.drain()
    outcome = sandbox.up('pulumi.Config().require("size")')
    assert outcome.code == 1
    assert any("sandbox:size" in error for error in outcome.errors)
    assert sandbox.world.drain() == []


def test_state_has_the_outputs_that_a_component_registers(sandbox: Sandbox) -> None:
    sandbox.up('g = Group("g")\ng.register_outputs({"answer": 42})')
    assert sandbox.stored["g"]["outputs"] == {"answer": 42}


def test_default_provider_gets_its_config_from_the_stack(sandbox: Sandbox) -> None:
    sandbox.config("config:\n  test:region: north\n")
    sandbox.up('Thing("a")')
    assert sandbox.stored["default"]["inputs"]["region"] == "north"


def test_external_resource_is_read_and_never_deleted(sandbox: Sandbox) -> None:
    sandbox.world.things["there-9"] = {"value": "theirs"}
    outcome = sandbox.up('pulumi.export("v", Thing("there", opts=Options(id="there-9")).value)')
    assert outcome.code == 0, outcome.errors
    assert outcome.outputs == {"v": "theirs"}
    assert sandbox.destroy().code == 0
    assert "there-9" in sandbox.world.things


def test_reading_a_missing_external_resource_fails(sandbox: Sandbox) -> None:
    outcome = sandbox.up('Thing("there", opts=Options(id="there-9"))')
    assert outcome.code == 1
    assert "no resource with the id 'there-9' exists" in outcome.errors[0]
