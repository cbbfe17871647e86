"""Resource options that prevent deletion, keep resources or rename them."""

from __future__ import annotations

from tests.unit.engine.programs.sandbox import Sandbox


def test_one_protected_resource_prevents_every_deletion(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", Options(protect=True))\nThing("b")')
    sandbox.world.drain()
    outcome = sandbox.up("pass")
    assert outcome.code == 1
    assert len(outcome.errors) == 1
    assert (
        "no resource was deleted, because these resources are protected: test:index:Thing a;"
        in outcome.errors[0]
    )
    assert sandbox.world.drain() == []
    assert sandbox.destroy().code == 1
    assert sandbox.world.drain() == []


def test_protected_resource_is_not_replaced(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", Options(protect=True), key="1")')
    sandbox.world.drain()
    for outcome in (sandbox.preview('Thing("a", Options(protect=True), key="2")'), sandbox.up()):
        assert outcome.code == 1
        assert (
            "this change would replace the resource, but the resource is protected"
            in outcome.errors[0]
        )
    assert sandbox.world.drain() == []


def test_refused_replacement_names_the_settings_that_cause_it(sandbox: Sandbox) -> None:
    (sandbox.root / "protected.yaml").write_text("a: [jail.claim]")
    sandbox.up('Thing("a", Options(protect=True), key="1")')

    for outcome in (sandbox.preview('Thing("a", Options(protect=True), key="2")'), sandbox.up()):
        assert (
            "the resource is protected (settings whose edit can cause this: jail.claim); revert"
            in outcome.errors[0]
        )
    assert (
        "test:index:Thing a (settings whose edit can cause this: jail.claim);"
        in sandbox.destroy().errors[0]
    )


def test_one_update_can_unprotect_and_replace_a_resource(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", Options(protect=True), key="1")')
    assert sandbox.up('Thing("a", key="2")').counts == {"replace": 1}


def test_protected_dependent_prevents_a_replacement_before_any_deletion(
    sandbox: Sandbox,
) -> None:
    program = 'a = Thing("a", key="{}", fixed=True)\nThing("b", Options(protect=True), on=a.self)'
    sandbox.up(program.format(1))
    sandbox.world.drain()
    outcome = sandbox.up(program.format(2))
    assert outcome.code == 1
    assert "test:index:Thing b" in outcome.errors[0]
    assert sandbox.world.drain() == []


def test_children_inherit_protect_from_their_parent(sandbox: Sandbox) -> None:
    sandbox.up('g = Group("g", Options(protect=True))\nThing("a", Options(parent=g))')
    assert sandbox.stored["a"]["protect"] is True


def test_children_inherit_retain_on_delete_from_their_parent(sandbox: Sandbox) -> None:
    sandbox.up('g = Group("g", Options(retain_on_delete=True))\nThing("a", Options(parent=g))')
    assert sandbox.stored["a"]["retainOnDelete"] is True


def test_retained_resource_is_removed_only_from_the_state(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", Options(retain_on_delete=True))')
    sandbox.world.drain()
    assert sandbox.up("pass").counts == {"delete": 1}
    assert sandbox.world.drain() == []
    assert list(sandbox.world.things) == ["a-1"]


def test_resource_with_option_deleted_with_is_not_deleted_separately(sandbox: Sandbox) -> None:
    sandbox.up('a = Thing("a")\nThing("b", Options(deleted_with=a))')
    sandbox.world.drain()
    assert sandbox.destroy().code == 0
    assert sandbox.world.drain() == ["delete a"]


def test_resource_is_deleted_if_the_target_of_deleted_with_stays(sandbox: Sandbox) -> None:
    sandbox.up('a = Thing("a")\nThing("b", Options(deleted_with=a))')
    sandbox.world.drain()
    assert sandbox.up('a = Thing("a")').code == 0
    assert sandbox.world.drain() == ["delete b"]


def test_alias_keeps_a_resource_that_got_another_name(sandbox: Sandbox) -> None:
    sandbox.up('a = Thing("a", value="1")\nThing("b", value=a.self)')
    sandbox.world.drain()
    outcome = sandbox.up(
        'a = Thing("new", Options(aliases=[pulumi.Alias(name="a")]), value="1")\n'
        'Thing("b", value=a.self)'
    )
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == []
    assert set(sandbox.stored) == {"sandbox-dev", "default", "new", "b"}
    assert sandbox.stored["b"]["dependencies"] == [sandbox.stored["new"]["urn"]]


def test_alias_of_a_renamed_component_keeps_its_children(sandbox: Sandbox) -> None:
    sandbox.up('g = Group("g")\nThing("g-a", Options(parent=g))')
    sandbox.world.drain()
    outcome = sandbox.up(
        'h = Group("h", Options(aliases=[pulumi.Alias(name="g")]))\nThing("h-a", Options(parent=h))'
    )
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == []
    assert "$test:index:Thing::h-a" in sandbox.stored["h-a"]["urn"]


def test_alias_keeps_a_resource_that_got_a_parent(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")')
    sandbox.world.drain()
    outcome = sandbox.up(
        'g = Group("g")\n'
        'Thing("a", Options(parent=g, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)]))'
    )
    assert outcome.code == 0, outcome.errors
    assert sandbox.world.drain() == []


def test_alias_that_names_another_existing_resource_is_refused(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a")')
    aliased = 'Thing("b", Options(aliases=[pulumi.Alias(name="a")]))'
    for program in (
        'a = Thing("a")\nThing("b", Options(aliases=[pulumi.Alias(name="a")], depends_on=a))',
        f'b = {aliased}\nThing("a", Options(depends_on=b))',
    ):
        outcome = sandbox.up(program)
        assert outcome.code == 1
        assert "alias" in outcome.errors[0]
        assert len(outcome.errors) == 1


def test_custom_timeout_is_stored_and_passed_to_the_provider(sandbox: Sandbox) -> None:
    sandbox.up('Thing("a", Options(custom_timeouts=pulumi.CustomTimeouts(create="1h30m")))')
    assert sandbox.stored["a"]["customTimeouts"] == {"create": 5400}


def test_explicit_provider_manages_the_resources_that_use_it(sandbox: Sandbox) -> None:
    outcome = sandbox.up(
        """
        class Provider(pulumi.ProviderResource):
            def __init__(self, name, region):
                super().__init__("test", name, {"region": region})
        p = Provider("mine", "north")
        Thing("a", Options(provider=p))
        """
    )
    assert outcome.code == 0, outcome.errors
    mine = sandbox.stored["mine"]
    assert sandbox.stored["a"]["provider"] == f"{mine['urn']}::{mine['id']}"
    assert mine["inputs"]["region"] == "north"
    assert sandbox.preview(expect_no_changes=True).code == 0
    assert sandbox.destroy().steps[-2:] == [("delete", "mine"), ("delete", "sandbox-dev")]
