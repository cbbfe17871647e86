"""The state while a run changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine.state import Pending, Snapshot, StoredResource
from engine.urns import split_reference


class Journal:
    """The state while it changes: what this run has settled, then what it has yet to come to.

    What is settled stands in the order in which it was, so that everything a resource refers to
    precedes it; the rest keeps its old order.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._old = list(snapshot.resources)
        self._settled: list[StoredResource] = []
        self._pending = {pending.resource: pending for pending in snapshot.pending}
        self._renamed: dict[str, str] = {}  # old URNs to new ones, of what was found by an alias

    def old(self, urn: str) -> StoredResource | None:
        """What the state has under a URN and this run has not settled; nothing condemned."""
        return next((r for r in self._old if r.urn == urn and not r.delete), None)

    def settled(self, urn: str) -> StoredResource | None:
        """What this run has made of a resource."""
        return next((r for r in self._settled if r.urn == urn), None)

    def find(self, urn: str, resource_id: str) -> StoredResource | None:
        """Any resource, condemned or not, by URN and id."""
        both = (*self._settled, *self._old)
        return next((r for r in both if r.urn == urn and r.id == resource_id), None)

    def left(self) -> tuple[StoredResource, ...]:
        """What this run has not settled."""
        return tuple(self._old)

    def settle(
        self, new: StoredResource, old: StoredResource | None, *, condemn: bool = False
    ) -> None:
        """``new`` is how the resource is from now on, in place of ``old``.

        To ``condemn`` the old one is to keep it, marked, until it is deleted.
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
        """A resource that the state did not know of; the program has yet to come to it."""
        self._old.append(found)

    def amend(self, before: StoredResource, after: StoredResource) -> None:
        """One resource in place of another, where it stands."""
        for resources in (self._settled, self._old):
            resources[:] = [after if resource is before else resource for resource in resources]

    def drop(self, resource: StoredResource) -> None:
        """The resource is gone."""
        for resources in (self._settled, self._old):
            resources[:] = [other for other in resources if other is not resource]

    def begin(self, kind: str, resource: StoredResource) -> None:
        """An operation starts; until ``end`` its outcome is unknown."""
        self._pending[resource] = Pending(kind, resource)

    def end(self, resource: StoredResource) -> None:
        """The operation's outcome is known."""
        self._pending.pop(resource, None)

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        resources = (*self._settled, *self._old)
        if self._renamed:
            resources = tuple(_renamed(resource, self._renamed) for resource in resources)
        return Snapshot(resources, tuple(self._pending.values()))


def _renamed(resource: StoredResource, names: Mapping[str, str]) -> StoredResource:
    """The resource with what it refers to under its new name; itself where nothing changes."""
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
