"""Keep the state of a stack while a run changes the stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine.state import Pending, Snapshot, StoredResource
from engine.urns import split_reference


class Journal:
    """The state during a run: first the settled resources, then the unsettled ones.

    A resource is settled when the run has recorded its new state. Settled resources are in the
    order in which they were recorded, so a resource follows all resources that it refers to. The
    unsettled resources keep their old order.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._old = list(snapshot.resources)
        self._settled: list[StoredResource] = []
        self._pending = {pending.resource: pending for pending in snapshot.pending}
        self._renamed: dict[str, str] = {}  # from old URN to new URN, if an alias matched

    def old(self, urn: str) -> StoredResource | None:
        """Return the resource with this URN, if it is not settled and not marked for deletion."""
        return next((r for r in self._old if r.urn == urn and not r.delete), None)

    def settled(self, urn: str) -> StoredResource | None:
        return next((r for r in self._settled if r.urn == urn), None)

    def find(self, urn: str, resource_id: str) -> StoredResource | None:
        """Return a resource by URN and id, even if it is marked for deletion."""
        both = (*self._settled, *self._old)
        return next((r for r in both if r.urn == urn and r.id == resource_id), None)

    def left(self) -> tuple[StoredResource, ...]:
        """Return the resources that this run has not settled."""
        return tuple(self._old)

    def settle(
        self, new: StoredResource, old: StoredResource | None, *, condemn: bool = False
    ) -> None:
        """Record ``new`` as the settled state of a resource, in place of ``old``.

        With ``condemn``, ``old`` stays in the state, marked for deletion.
        """
        self._settled.append(new)
        if old is None:
            return
        if condemn:
            self.amend(old, replace(old, delete=True))
        else:
            self.drop(old)
        if old.urn != new.urn:
            self._renamed[old.urn] = new.urn

    def append(self, found: StoredResource) -> None:
        """Add a resource that was not in the state; the program has not registered it yet."""
        self._old.append(found)

    def amend(self, before: StoredResource, after: StoredResource) -> None:
        """Replace a resource in the state, and keep its position."""
        for resources in (self._settled, self._old):
            resources[:] = [after if resource is before else resource for resource in resources]

    def drop(self, resource: StoredResource) -> None:
        for resources in (self._settled, self._old):
            resources[:] = [other for other in resources if other is not resource]

    def begin(self, kind: str, resource: StoredResource) -> None:
        """Record the start of an operation; its outcome is unknown until ``end``."""
        self._pending[resource] = Pending(kind, resource)

    def end(self, resource: StoredResource) -> None:
        """Record that the operation's outcome is known."""
        self._pending.pop(resource, None)

    def snapshot(self) -> Snapshot:
        resources = (*self._settled, *self._old)
        if self._renamed:
            resources = tuple(_renamed(resource, self._renamed) for resource in resources)
        return Snapshot(resources, tuple(self._pending.values()))


def _renamed(resource: StoredResource, names: Mapping[str, str]) -> StoredResource:
    """Return the resource with renamed references; the same object if no reference changes."""
    if not any(urn in names for urn in resource.references()):
        return resource

    def new(urns: Iterable[str]) -> tuple[str, ...]:
        return tuple(names.get(urn, urn) for urn in urns)

    provider = resource.provider
    if provider:
        urn, provider_id = split_reference(provider)
        provider = f"{names.get(urn, urn)}::{provider_id}"
    return replace(
        resource,
        parent=names.get(resource.parent, resource.parent),
        deleted_with=names.get(resource.deleted_with, resource.deleted_with),
        provider=provider,
        dependencies=new(resource.dependencies),
        replace_with=new(resource.replace_with),
        property_dependencies={
            key: new(urns) for key, urns in resource.property_dependencies.items()
        },
    )
