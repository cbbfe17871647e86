"""Compute the effect of an edit of the settings on a stack's resources, with the rules of the
embedded engine."""

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from google.protobuf import json_format, struct_pb2

from engine import planning
from engine.builtin import ProviderResources, provider_config
from engine.planning import Goal, Op, Plan
from engine.providers import Diff, Provider, Resource, load
from engine.state import StoredResource
from engine.urns import is_provider, name_of, package_of
from engine.values import UNKNOWN, Properties, from_struct, plain_properties
from tests.support.graph import Graph, Registration

_WORKLOADS = ("kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet")


@dataclass(frozen=True)
class Effect:
    """Names in Pulumi of the resources that an edit changes. All other resources stay unchanged.

    Components are omitted, because they consist only of their children.
    """

    created: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    updated: frozenset[str] = frozenset()
    """Resources that are changed in place. No pod is replaced."""
    rolled: frozenset[str] = frozenset()
    """Workloads that are changed in place, so that their pods are replaced."""
    replaced: frozenset[str] = frozenset()
    """Resources that are deleted and created again."""
    refused: frozenset[str] = frozenset()
    """Protected resources that the edit would replace or delete. The deploy stops at the first of
    them."""


def effect(before: Graph, after: Graph) -> Effect:
    """Return the effect of a deploy of `after` on a stack in the state `before`."""
    (provider,) = (_wire(one) for one in before.of_type("pulumi:providers:kubernetes"))
    olds, news = _wires(before), _wires(after)
    stored = {one.urn: _stored(one, provider, olds[one.urn]) for one in _custom(before)}
    found: dict[str, set[str]] = {}
    forced: set[str] = set()
    """URNs of dependents that must be replaced together with another resource."""
    for one in _custom(after):
        old = stored.get(one.urn)
        if old is None:
            found.setdefault("created", set()).add(name_of(one.urn))
            continue
        old = replace(old, pending_replacement=one.urn in forced)
        diff = _diff(provider, one.type, one.urn, olds[one.urn], news[one.urn])
        planned = planning.plan(_goal(one), old, diff)
        if planned.op is Op.REPLACE and old.protect and one.protect:
            found.setdefault("refused", set()).add(name_of(one.urn))
            break
        if planned.op is not Op.SAME:
            found.setdefault(_kind(planned, one), set()).add(name_of(one.urn))
        if planned.op is Op.REPLACE and planned.delete_first:
            forced |= _lost_with(one.urn, stored.values(), provider)
    else:
        condemned = stored.keys() - news.keys()
        kept = {name_of(urn) for urn in condemned if stored[urn].protect}
        # If one of the resources to delete is protected, the engine deletes none of them.
        found["refused" if kept else "deleted"] = kept or {name_of(urn) for urn in condemned}
    return Effect(**{kind: frozenset(names) for kind, names in found.items()})


def _kind(planned: Plan, new: Registration) -> str:
    if planned.op is Op.REPLACE:
        return "replaced"
    template = any(path.startswith("spec.template") for path in planned.changed)
    return "rolled" if template and new.type in _WORKLOADS else "updated"


def _lost_with(urn: str, stored: Iterable[StoredResource], provider: str) -> set[str]:
    """Return the dependents to replace if the resource is deleted before its replacement exists."""
    lost = {urn}
    for old in stored:
        inputs = planning.inputs_without(old, lost)
        if not inputs:
            continue
        diff = _manager(provider, old.type).diff(_resource(old.urn, old.type, old.inputs), inputs)
        if planning.plan(_goal(old), old, diff).op is Op.REPLACE:
            lost.add(old.urn)
    return lost - {urn}


# Some functions below cache their results, because most resources are the same in all recorded
# stacks. So callers must not change the results. The parameter `provider` is the configuration of
# the Kubernetes provider as JSON.


def _manager(provider: str, type_: str) -> Provider:
    return _managers(provider)[package_of(type_)]


@functools.cache
def _managers(provider: str) -> dict[str, Provider]:
    """Return the engine's providers by package. The Kubernetes provider connects to no cluster."""
    config = {**provider_config(_properties(provider)), "kubeconfig": UNKNOWN}
    return {
        "pulumi": ProviderResources(),
        "command": load("command", {}, preview=True),
        "random": load("random", {}, preview=True),
        "kubernetes": load("kubernetes", plain_properties(config), preview=True),
    }


@functools.cache
def _properties(wire: str) -> Properties:
    """Read properties as the engine does."""
    return plain_properties(from_struct(json_format.Parse(wire, struct_pb2.Struct())))


@functools.cache
def _checked(provider: str, type_: str, urn: str, old: str | None, new: str) -> Properties:
    """Return inputs as the engine's state stores them. Generated names come from the old inputs."""
    if is_provider(type_):
        return _properties(new)
    olds = {} if old is None else _checked(provider, type_, urn, None, old)
    return _manager(provider, type_).check(type_, urn, olds, _properties(new))


@functools.cache
def _diff(provider: str, type_: str, urn: str, old: str, new: str) -> Diff:
    olds = _checked(provider, type_, urn, None, old)
    news = _checked(provider, type_, urn, old, new)
    return _manager(provider, type_).diff(_resource(urn, type_, olds), news)


def _custom(graph: Graph) -> list[Registration]:
    return [one for one in graph.resources if one.custom]


def _wires(graph: Graph) -> dict[str, str]:
    """Return the inputs of each resource by its URN, as JSON."""
    return {one.urn: _wire(one) for one in _custom(graph)}


def _wire(one: Registration) -> str:
    return json.dumps(one.inputs)


def _stored(one: Registration, provider: str, wire: str) -> StoredResource:
    return StoredResource(
        urn=one.urn,
        type=one.type,
        custom=True,
        id=one.urn,
        inputs=_checked(provider, one.type, one.urn, None, wire),
        parent=one.parent,
        protect=one.protect,
        property_dependencies=one.property_dependencies,
    )


def _resource(urn: str, type_: str, inputs: Properties) -> Resource:
    return Resource(urn, type_, name_of(urn), urn, inputs, {})


def _goal(resource: Registration | StoredResource) -> Goal:
    return Goal(resource.type, name_of(resource.urn), custom=True)
