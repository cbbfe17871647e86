"""Rules for planning a deployment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import planning
from engine.errors import EngineError
from engine.planning import Goal, Op, Plan, plan
from engine.providers import Diff
from engine.state import StoredResource
from engine.urns import make_urn
from engine.values import UNKNOWN, Secret

NOTHING = Diff()
GOAL = Goal("test:index:Thing", "a", custom=True)


def urn(name: str) -> str:
    return make_urn("dev", "project", "", "test:index:Thing", name)


def stored(name: str = "a", **fields: object) -> StoredResource:
    resource = StoredResource(urn(name), "test:index:Thing", custom=True, id=f"{name}-1")
    return replace(resource, **fields)  # type: ignore[arg-type]


def test_resource_missing_from_the_state_is_created() -> None:
    assert plan(GOAL, None, NOTHING) == Plan(Op.CREATE)


def test_resource_that_was_external_before_is_created() -> None:
    assert plan(GOAL, stored(external=True), NOTHING).op is Op.CREATE


def test_unchanged_resource_needs_no_operation() -> None:
    assert plan(GOAL, stored(), NOTHING) == Plan(Op.SAME)


def test_changed_resource_is_updated() -> None:
    assert plan(GOAL, stored(), Diff(("x",))) == Plan(Op.UPDATE, ("x",))


def test_unchanged_resource_that_was_never_ready_is_updated() -> None:
    assert plan(GOAL, stored(init_errors=("no pod",)), NOTHING).op is Op.UPDATE


@pytest.mark.parametrize(
    ("goal", "old", "diff", "reason"),
    [
        (GOAL, stored(), Diff(("x",), ("x",)), "x"),
        (GOAL, stored(taint=True), NOTHING, "id"),
        (GOAL, stored(pending_replacement=True), NOTHING, "id"),
        (replace(GOAL, replace_on_changes=("x",)), stored(), Diff(("x.y",)), "x.y"),
        (replace(GOAL, replace_on_changes=("x[*].y",)), stored(), Diff(("x[3].y",)), "x[3].y"),
        (replace(GOAL, replace_with=(urn("b"),)), stored(), NOTHING, "replaceWith"),
        (replace(GOAL, deleted_with=urn("b")), stored(), NOTHING, "deletedWith"),
        (
            replace(GOAL, replacement_trigger=2),
            stored(replacement_trigger=1),
            NOTHING,
            "replacementTrigger",
        ),
        (
            replace(GOAL, replacement_trigger=UNKNOWN),
            stored(replacement_trigger=1),
            NOTHING,
            "replacementTrigger",
        ),
    ],
)
def test_plan_names_each_reason_for_a_replacement(
    goal: Goal, old: StoredResource, diff: Diff, reason: str
) -> None:
    planned = plan(goal, old, diff, replaced={urn("b")})
    assert (planned.op, planned.replaces) == (Op.REPLACE, (reason,))


def test_changed_provider_replaces_the_resource() -> None:
    assert plan(GOAL, stored(), NOTHING, provider_changed=True).replaces == ("provider",)


def test_new_or_unchanged_trigger_replaces_nothing() -> None:
    goal = replace(GOAL, replacement_trigger=Secret("x"))
    assert plan(goal, stored(), NOTHING).op is Op.SAME
    assert plan(goal, stored(replacement_trigger="x"), NOTHING).op is Op.SAME


@pytest.mark.parametrize("provider", [True, False])
@pytest.mark.parametrize("program", [None, True, False])
def test_option_delete_before_replace_overrides_the_order_of_the_provider(
    provider: bool, program: bool | None
) -> None:
    goal = replace(GOAL, delete_before_replace=program)
    planned = plan(goal, stored(), Diff(("x",), ("x",), provider))
    assert planned.delete_first is (provider if program is None else program)


def test_child_inherits_options_that_it_does_not_set() -> None:
    parent = replace(GOAL, protect=True, retain_on_delete=True, deleted_with=urn("b"))
    child = planning.inherited(GOAL, parent)
    assert (child.protect, child.retain_on_delete, child.deleted_with) == (True, True, urn("b"))
    own = replace(GOAL, protect=False, retain_on_delete=False, deleted_with=urn("c"))
    assert planning.inherited(own, parent) == own
    assert planning.inherited(GOAL, None) == GOAL


def test_replacement_is_refused_if_state_and_program_protect_the_resource() -> None:
    with pytest.raises(EngineError, match="protected"):
        planning.refuse_replacing_protected(stored(protect=True), True, {})
    planning.refuse_replacing_protected(stored(protect=True), False, {})
    planning.refuse_replacing_protected(stored(), True, {})


def test_error_about_a_protected_resource_names_the_settings_that_cause_it() -> None:
    settings = {"a": ["jail.claim", "jail.nfs"]}

    with pytest.raises(
        EngineError, match=r"\(settings whose edit can cause this: jail\.claim, jail\.nfs\); revert"
    ):
        planning.refuse_replacing_protected(stored(protect=True), True, settings)
    with pytest.raises(
        EngineError,
        match=r"Thing a \(settings whose edit can cause this: jail\.claim, jail\.nfs\);",
    ):
        planning.refuse_deleting_protected([stored(protect=True)], settings)


def test_error_names_all_protected_resources_before_any_deletion() -> None:
    with pytest.raises(EngineError, match=r"test:index:Thing a, test:index:Thing b;"):
        planning.refuse_deleting_protected([stored("b", protect=True), stored(protect=True)], {})
    planning.refuse_deleting_protected([stored(), stored("b", protect=True, delete=True)], {})


def test_inputs_that_depend_on_a_replaced_resource_are_unknown() -> None:
    old = stored(
        "b",
        inputs={"x": 1, "y": 2},
        property_dependencies={"x": (urn("a"),), "y": (), "gone": (urn("a"),)},
    )
    assert planning.inputs_without(old, {urn("a")}) == {"x": UNKNOWN, "y": 2}
    assert planning.inputs_without(old, {urn("c")}) is None


def test_replacing_a_provider_or_deleted_with_target_removes_its_resources() -> None:
    assert planning.goes_with(stored(provider=f"{urn('p')}::1"), {urn("p")})
    assert planning.goes_with(stored(deleted_with=urn("b")), {urn("b")})
    assert not planning.goes_with(stored(provider=f"{urn('p')}::1"), {urn("b")})


def test_replacement_never_includes_components_external_deleted_or_decided_resources() -> None:
    """The second argument has the resources whose operation the engine has already decided."""
    assert planning.may_be_dependent(stored(), set())
    assert not planning.may_be_dependent(stored(), {urn("a")})
    assert not planning.may_be_dependent(stored(external=True), set())
    assert not planning.may_be_dependent(stored(delete=True), set())
    assert not planning.may_be_dependent(stored(custom=False), set())


def test_dependents_and_children_are_deleted_before_the_resource() -> None:
    p, a = stored("p"), stored("a")
    b = stored("b", dependencies=(urn("a"),), provider=f"{urn('p')}::p-1")
    c = stored("c", parent=urn("a"), property_dependencies={"x": (urn("b"),)})
    order = planning.order_of_deletion([p, a, b, c])
    assert order == {p: {b}, a: {b, c}, b: {c}, c: frozenset()}


def test_old_object_marked_for_deletion_is_deleted_before_its_dependencies() -> None:
    a = stored("a")
    b = stored("b", delete=True, dependencies=(urn("a"),))
    assert planning.order_of_deletion([a, b]) == {a: {b}, b: frozenset()}


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=4)), max_size=12))
def test_order_of_deletions_has_no_cycle(
    shapes: list[tuple[int, list[int]]],
) -> None:
    condemned = [
        stored(str(name), dependencies=tuple(urn(str(other)) for other in others))
        for name, others in shapes
    ]
    order = planning.order_of_deletion(condemned)
    position = {resource: index for index, resource in enumerate(condemned)}
    assert list(order) == condemned
    assert all(position[o] > position[r] for r, others in order.items() for o in others)
