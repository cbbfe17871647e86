"""Rules for planning a deployment, as pure functions.

The rules are Pulumi's. They define which operation a difference requires, which other resources a
replacement also replaces, and in which order resources are deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from engine.aliases import Alias
from engine.errors import EngineError
from engine.paths import contains, parse_path
from engine.providers import Diff
from engine.state import StoredResource
from engine.urns import make_urn, name_of, split_reference
from engine.values import UNKNOWN, Properties, Value, contains_unknown, plain


class Op(StrEnum):
    """An operation on a resource. The values are the words that Pulumi prints for operations."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    READ = "read"


@dataclass(frozen=True)
class Goal:
    """A resource as the program wants it. Timeouts are in seconds, by operation."""

    type: str
    name: str
    custom: bool
    inputs: Properties = field(default_factory=dict)
    parent: str = ""
    provider: str = ""
    version: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    protect: bool | None = None
    retain_on_delete: bool | None = None
    deleted_with: str = ""
    replace_with: tuple[str, ...] = ()
    replacement_trigger: Value = None
    delete_before_replace: bool | None = None
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    additional_secret_outputs: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()
    custom_timeouts: Mapping[str, float] = field(default_factory=dict)

    def urn(self, stack: str, project: str) -> str:
        """Return the resource's URN."""
        return make_urn(stack, project, self.parent, self.type, self.name)


@dataclass(frozen=True)
class Plan:
    """The planned operation on one resource, and the property paths that cause it."""

    op: Op
    changed: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    delete_first: bool = False


def plan(
    goal: Goal,
    old: StoredResource | None,
    diff: Diff,
    *,
    replaced: Collection[str] = (),
    provider_changed: bool = False,
) -> Plan:
    """Return the planned operation for a difference between state and program.

    ``replaced`` has the URNs of resources that this deployment has already replaced.
    """
    if old is None or old.external:
        return Plan(Op.CREATE)
    replaces = _reasons_to_replace(goal, old, diff, replaced, provider_changed)
    if replaces:
        delete_first = diff.delete_before_replace
        if goal.delete_before_replace is not None:
            delete_first = goal.delete_before_replace
        changed = tuple(dict.fromkeys((*diff.changed, *diff.replaces)))
        return Plan(Op.REPLACE, changed, replaces, delete_first)
    if diff.changed or old.init_errors:
        return Plan(Op.UPDATE, diff.changed)
    return Plan(Op.SAME)


def _reasons_to_replace(
    goal: Goal,
    old: StoredResource,
    diff: Diff,
    replaced: Collection[str],
    provider_changed: bool,
) -> tuple[str, ...]:
    reasons: list[str] = []
    if old.pending_replacement or old.taint:
        reasons.append("id")
    if any(urn in replaced for urn in goal.replace_with):
        reasons.append("replaceWith")
    if goal.deleted_with in replaced:
        reasons.append("deletedWith")
    if provider_changed:
        reasons.append("provider")
    if _trigger_fired(goal.replacement_trigger, old.replacement_trigger):
        reasons.append("replacementTrigger")
    patterns = [parse_path(pattern) for pattern in goal.replace_on_changes]
    forced = [
        path
        for path in diff.changed
        if any(contains(pattern, parse_path(path)) for pattern in patterns)
    ]
    return tuple(dict.fromkeys((*reasons, *diff.replaces, *forced)))


def _trigger_fired(new: Value, old: Value) -> bool:
    if new is None or old is None:
        return False
    return contains_unknown(new) or plain(new) != plain(old)


def inherited(goal: Goal, parent: Goal | None) -> Goal:
    """Return the goal, with unset options inherited from its parent."""
    if parent is None:
        return goal
    return replace(
        goal,
        protect=parent.protect if goal.protect is None else goal.protect,
        retain_on_delete=(
            parent.retain_on_delete if goal.retain_on_delete is None else goal.retain_on_delete
        ),
        deleted_with=goal.deleted_with or parent.deleted_with,
    )


Settings: TypeAlias = Mapping[str, Sequence[str]]
"""Maps the name of a protected resource to the settings whose edit would replace or delete it."""


def refuse_replacing_protected(
    old: StoredResource, protect: bool | None, settings: Settings
) -> None:
    """Raise EngineError if the resource is protected: a replacement would delete it."""
    if old.protect and protect:
        raise EngineError(
            "this change would replace the resource, but the resource is"
            f" protected{_cause(old, settings)}; revert the change, or deploy twice: first"
            " only with slurmstack:protect_data: false (protect=False), then with this change"
        )


def refuse_deleting_protected(condemned: Iterable[StoredResource], settings: Settings) -> None:
    """Raise EngineError if any resource is protected, so that nothing is deleted."""
    held = [resource for resource in condemned if resource.protect and not resource.delete]
    if held:
        names = ", ".join(sorted(f"{r.type} {name_of(r.urn)}{_cause(r, settings)}" for r in held))
        raise EngineError(
            f"no resource was deleted, because these resources are protected: {names}; to"
            " delete them, first deploy with slurmstack:protect_data: false (protect=False)"
        )


def _cause(old: StoredResource, settings: Settings) -> str:
    keys = settings.get(name_of(old.urn))
    return f" (settings whose edit can cause this: {', '.join(keys)})" if keys else ""


def inputs_without(old: StoredResource, replaced: Collection[str]) -> Properties | None:
    """Return a dependent's inputs, with UNKNOWN for inputs that a replaced resource provides.

    Return None if replaced resources provide no input of the dependent.
    """
    affected = {
        key
        for key, urns in old.property_dependencies.items()
        if key in old.inputs and any(urn in replaced for urn in urns)
    }
    if not affected:
        return None
    return {key: UNKNOWN if key in affected else value for key, value in old.inputs.items()}


def goes_with(old: StoredResource, replaced: Collection[str]) -> bool:
    """Return whether a replacement of the resources in ``replaced`` also removes this resource.

    It does if one of them is this resource's provider, or the resource that ``deleted_with`` names.
    """
    provider = split_reference(old.provider)[0] if old.provider else ""
    return provider in replaced or old.deleted_with in replaced


def may_be_dependent(old: StoredResource, settled: Collection[str]) -> bool:
    """Return whether another resource's replacement can also replace ``old``.

    A replacement never also replaces components, resources outside the stack, resources that are
    marked for deletion, and resources in ``settled``.
    """
    return old.custom and not old.external and not old.delete and old.urn not in settled


def order_of_deletion(
    condemned: Sequence[StoredResource],
) -> dict[StoredResource, frozenset[StoredResource]]:
    """Return, for each resource, the resources that must be deleted before it.

    ``condemned`` is in the state's order. Before a resource, delete all resources that refer to it:
    its dependents, its children and, if it is a provider, the resources that it manages. A resource
    refers only to earlier resources, so there are no cycles, even if a URN occurs twice.
    """
    before: dict[StoredResource, set[StoredResource]] = {r: set() for r in condemned}
    earlier: dict[str, list[StoredResource]] = {}
    for resource in condemned:
        for urn in resource.references():
            for target in earlier.get(urn, ()):
                before[target].add(resource)
        earlier.setdefault(resource.urn, []).append(resource)
    return {resource: frozenset(others) for resource, others in before.items()}
