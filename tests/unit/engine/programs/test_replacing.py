"""The order of replacements, and the resources that are replaced together."""

from __future__ import annotations

from tests.unit.engine.programs.sandbox import Sandbox


def test_replacement_is_created_before_the_original_is_deleted(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", key="1")')
    sandbox.world.drain()
    outcome = sandbox.up('Thing("a", key="2")')
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == ["create a", "delete a"]
    assert outcome.counts == {"replace": 1}
    assert sandbox.preview(expect_no_changes=True).code == 0


def test_dependents_are_updated_before_the_original_is_deleted(sandbox: Sandbox) -> None:
    program = 'a = Thing("a", key="{}")\nb = Thing("b", value=a.self)'
    sandbox.up(program.format(1))
    sandbox.world.drain()
    sandbox.up(program.format(2))
    assert sandbox.world.drain() == ["create a", "update b", "delete a"]


def test_generated_name_changes_only_if_the_resource_is_replaced(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", key="1", value="1")')
    first = sandbox.stored["a"]["inputs"]["label"]
    sandbox.up('Thing("a", key="1", value="2")')
    assert sandbox.stored["a"]["inputs"]["label"] == first
    sandbox.up('Thing("a", key="2", value="2")')
    assert sandbox.stored["a"]["inputs"]["label"] != first


def test_resource_with_a_fixed_name_is_deleted_before_its_replacement(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", key="1", fixed=True)')
    sandbox.world.drain()
    outcome = sandbox.up('Thing("a", key="2", fixed=True)')
    assert sandbox.world.drain() == ["delete a", "create a"]
    assert outcome.counts == {"replace": 1}


def test_option_delete_before_replace_sets_the_order(sandbox: Sandbox) -> None:
    options = "Options(delete_before_replace={})"
    sandbox.up('Thing("a", Options(delete_before_replace=True), key="1")')
    sandbox.up('Thing("b", key="1", fixed=True)\nThing("a", key="1")')
    sandbox.world.drain()
    sandbox.up(
        f'a = Thing("a", {options.format(True)}, key="2")\n'
        f'Thing("b", {options.format(False)}, key="2", fixed=True)'
    )
    done = sandbox.world.drain()
    assert done.index("delete a") < done.index("create a")
    assert done.index("create b") < done.index("delete b")


def test_dependents_that_need_replacement_are_deleted_first(sandbox: Sandbox) -> None:
    program = """
    a = Thing("a", key="{0}", fixed=True)
    b = Thing("b", on=a.self)
    c = Thing("c", value=a.self)
    d = Thing("d", on=b.self)
    """
    sandbox.up(program.format(1))
    sandbox.world.drain()
    preview = sandbox.preview(program.format(2))
    outcome = sandbox.up()
    assert outcome.code == 0, outcome.errors
    done = sandbox.world.drain()
    assert done[:3] == ["delete d", "delete b", "delete a"], "dependents must be deleted first"
    assert done[3] == "create a"
    assert sorted(done[4:]) == ["create b", "create d", "update c"], "c needs no replacement"
    assert outcome.counts == {"replace": 3, "update": 1} == preview.counts
    assert sandbox.preview(expect_no_changes=True).code == 0


def test_next_run_creates_a_resource_that_a_failed_replacement_deleted(
    sandbox: Sandbox,
) -> None:
    program = 'a = Thing("a", key="{}", fixed=True{})\nThing("b", on=a.self)'
    sandbox.up(program.format(1, ""))
    sandbox.world.drain()
    assert sandbox.up(program.format(2, ', fail="create"')).code == 1
    assert sandbox.world.drain() == ["delete b", "delete a"]
    assert sandbox.stored["a"]["pendingReplacement"] is True
    outcome = sandbox.up(program.format(2, ""))
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == ["create a", "create b"]
    assert "pendingReplacement" not in sandbox.stored["a"]


def test_program_may_drop_a_resource_after_a_failed_replacement(
    sandbox: Sandbox,
) -> None:
    sandbox.up('Thing("a", key="1", fixed=True)')
    sandbox.up('Thing("a", key="2", fixed=True, fail="create")')
    sandbox.world.drain()
    assert sandbox.up("pass").code == 0
    assert sandbox.world.drain() == []
    assert "a" not in sandbox.stored


def test_next_run_deletes_an_old_resource_whose_deletion_failed(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", key="1", fail="delete")')
    assert sandbox.up('Thing("a", key="2")').code == 1
    condemned = [r for r in sandbox.state["resources"] if r.get("delete")]
    assert len(condemned) == 1
    text = sandbox.state_file.read_text()
    sandbox.state_file.write_text(text.replace('"fail":"delete"', '"fail":"no"'))
    sandbox.world.drain()
    assert sandbox.preview(expect_no_changes=True).code == 1, (
        "the preview must count a pending deletion as a change"
    )
    assert sandbox.up().code == 0
    assert sandbox.world.drain() == ["delete a"]


def test_unready_replacement_is_updated_before_the_old_resource_is_deleted(
    sandbox: Sandbox,
) -> None:
    sandbox.up('Thing("a", key="1")')
    sandbox.world.drain()
    assert sandbox.up('Thing("a", key="2", fail="half")').code == 1
    assert sandbox.world.drain() == ["create a"]
    assert sandbox.stored["a"]["initErrors"] == ["it never became ready"]
    assert sandbox.up('Thing("a", key="2", fail="no")').code == 0
    assert sandbox.world.drain() == ["update a", "delete a"]


def test_option_replace_on_changes_replaces_the_resource(sandbox: Sandbox) -> None:
    program = 'Thing("a", Options(replace_on_changes=["value"]), value="{}")'
    sandbox.up(program.format(1))
    assert sandbox.up(program.format(2)).counts == {"replace": 1}


def test_option_ignore_changes_keeps_the_stored_inputs(sandbox: Sandbox) -> None:
    program = (
        'Thing("a", Options(ignore_changes=["value", "tags.x"]),'
        ' value="{0}", tags={{"x": "{0}", "y": "1"}})'
    )
    sandbox.up(program.format(1))
    assert sandbox.up(program.format(2)).steps == []
    assert sandbox.stored["a"]["inputs"]["value"] == "1"
    changed = sandbox.up(program.format(2).replace('"y": "1"', '"y": "2"'))
    assert changed.counts == {"update": 1}
    assert sandbox.stored["a"]["inputs"]["tags"] == {"x": "1", "y": "2"}


def test_option_replace_with_replaces_both_resources(sandbox: Sandbox) -> None:
    program = 'a = Thing("a", key="{}")\nThing("b", Options(replace_with=[a]))'
    sandbox.up(program.format(1))
    assert sandbox.up(program.format(2)).counts == {"replace": 2}


def test_changed_replacement_trigger_replaces_the_resource(sandbox: Sandbox) -> None:
    program = 'Thing("a", Options(replacement_trigger="{}"))'
    sandbox.up(program.format("monday"))
    assert sandbox.up(program.format("monday")).steps == []
    assert sandbox.up(program.format("tuesday")).counts == {"replace": 1}


def test_changed_config_of_a_provider_replaces_no_resource(sandbox: Sandbox) -> None:
    sandbox.config("config:\n  test:region: north\n")
    first = sandbox.up('Thing("a")')
    assert first.code == 0, first
    sandbox.world.drain()
    sandbox.config("config:\n  test:region: south\n")
    assert sandbox.up().code == 0
    assert sandbox.world.drain() == []
    assert sandbox.stored["default"]["inputs"]["region"] == "south"
