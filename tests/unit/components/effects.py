"""What an edit does to the graph, by the engine's own rules."""

import functools
import json
from collections.abc import Iterable, Iterator
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
    """Logical names of the resources that an edit does something to; the others stay as they are.

    Components are left out: they are nothing but what they hold.
    """

    created: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    updated: frozenset[str] = frozenset()
    """Changed in place; no pod is replaced."""
    rolled: frozenset[str] = frozenset()
    """Workloads that are changed in place, and whose pods are replaced."""
    replaced: frozenset[str] = frozenset()
    """Deleted, and made anew."""
    refused: frozenset[str] = frozenset()
    """A protected resource that the edit would replace or delete: the deploy ends there."""


def effect(before: Graph, after: Graph) -> Effect:
    """What a deploy of `after` does to a stack that is as `before` says."""
    managers = _managers(before)
    stored = {old.urn: old for old in _stored(before, managers, {})}
    wanted = list(_stored(after, managers, {urn: old.inputs for urn, old in stored.items()}))
    found: dict[str, set[str]] = {}
    forced: set[str] = set()
    """URNs of what a replacement takes along."""
    for new in wanted:
        old = stored.get(new.urn)
        if old is None:
            found.setdefault("created", set()).add(name_of(new.urn))
            continue
        old = replace(old, pending_replacement=new.urn in forced)
        planned = planning.plan(_goal(new), old, _diff(managers, old, new.inputs))
        if planned.op is Op.REPLACE and old.protect and new.protect:
            found.setdefault("refused", set()).add(name_of(new.urn))
            break
        if planned.op is not Op.SAME:
            found.setdefault(_kind(planned, new), set()).add(name_of(new.urn))
        if planned.op is Op.REPLACE and planned.delete_first:
            forced |= _lost_with(new.urn, stored.values(), managers)
    else:
        condemned = stored.keys() - {new.urn for new in wanted}
        kept = {name_of(urn) for urn in condemned if stored[urn].protect}
        # Of one that must stay, nothing goes.
        found["refused" if kept else "deleted"] = kept or {name_of(urn) for urn in condemned}
    return Effect(**{kind: frozenset(names) for kind, names in found.items()})


def _kind(planned: Plan, new: StoredResource) -> str:
    if planned.op is Op.REPLACE:
        return "replaced"
    template = any(path.startswith("spec.template") for path in planned.changed)
    return "rolled" if template and new.type in _WORKLOADS else "updated"


def _lost_with(
    urn: str, stored: Iterable[StoredResource], managers: dict[str, Provider]
) -> set[str]:
    """Dependents that a replacement forces to be replaced, since its object goes first."""
    lost = {urn}
    for old in stored:
        inputs = planning.inputs_without(old, lost)
        if inputs and planning.plan(_goal(old), old, _diff(managers, old, inputs)).op is Op.REPLACE:
            lost.add(old.urn)
    return lost - {urn}


def _managers(graph: Graph) -> dict[str, Provider]:
    """The engine's providers by package; that of Kubernetes knows of no cluster to ask."""
    (kubernetes,) = graph.of_type("pulumi:providers:kubernetes")
    config = {**provider_config(_inputs(kubernetes)), "kubeconfig": UNKNOWN}
    return {
        "pulumi": ProviderResources(),
        "command": load("command", {}, preview=True),
        "random": load("random", {}, preview=True),
        "kubernetes": load("kubernetes", plain_properties(config), preview=True),
    }


def _stored(
    graph: Graph, managers: dict[str, Provider], olds: dict[str, Properties]
) -> Iterator[StoredResource]:
    """The graph's resources as a state holds them; `olds` lend the names that were made up."""
    for one in graph.resources:
        if not one.custom:
            continue
        inputs = _inputs(one)
        if not is_provider(one.type):
            manager = managers[package_of(one.type)]
            inputs = manager.check(one.type, one.urn, olds.get(one.urn, {}), inputs)
        yield StoredResource(
            urn=one.urn,
            type=one.type,
            custom=True,
            id=one.urn,
            inputs=inputs,
            parent=one.parent,
            protect=one.protect,
            property_dependencies=one.property_dependencies,
        )


def _inputs(one: Registration) -> Properties:
    return _properties(json.dumps(one.inputs))


@functools.cache
def _properties(wire: str) -> Properties:
    """What the engine reads. Cached, because most resources of two graphs are alike."""
    return plain_properties(from_struct(json_format.Parse(wire, struct_pb2.Struct())))


def _goal(resource: StoredResource) -> Goal:
    return Goal(resource.type, name_of(resource.urn), custom=True)


def _diff(managers: dict[str, Provider], old: StoredResource, news: Properties) -> Diff:
    name = name_of(old.urn)
    seen = Resource(old.urn, old.type, name, old.id, old.inputs, old.outputs)
    return managers[package_of(old.type)].diff(seen, news)
