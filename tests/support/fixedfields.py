"""The fields of resources that no deploy can change in place."""

from collections.abc import Iterator
from typing import Any

from engine.providers.kubernetes.manifests import kind_of, mutability
from tests.support.graph import Graph, Registration

JOB = "kubernetes:batch/v1:Job"


def fixed_fields(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return parent and fixed fields of each resource, by URN.

    Fields of Jobs are left out: a deploy replaces a Job on purpose when its template changes, for
    example the tag of an image.
    """
    return {
        resource.urn: {"parent": resource.parent, "fields": dict(_fields(resource))}
        for resource in graph.resources
    }


def _fields(resource: Registration) -> Iterator[tuple[str, Any]]:
    if resource.type.startswith("random:"):
        yield from resource.inputs.items()
    if not resource.type.startswith("kubernetes:") or resource.type == JOB:
        return
    rules = mutability(kind_of(resource.type, resource.inputs), resource.inputs, True, True)
    for path in rules.replaced:
        yield ".".join(map(str, path)), _at(resource.inputs, path)


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
