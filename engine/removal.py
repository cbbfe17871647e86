"""Delete resources that the program no longer has, and the originals of replaced resources."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from engine import planning
from engine.errors import EngineError
from engine.events import Severity, Step
from engine.managers import Managers
from engine.planning import Goal, Op
from engine.providers import Operation
from engine.state import StoredResource
from engine.urns import is_provider, name_of, short
from engine.values import plain_properties
from engine.work import Stopped, Work, as_providers_see


class Removal:
    """The deletions of one run."""

    def __init__(self, work: Work, managers: Managers) -> None:
        self._work = work
        self._managers = managers
        self._going: set[str] = set()  # URNs that this run deletes, for ``deleted_with``
        self._underway: dict[str, asyncio.Future[None]] = {}
        self.decided: set[str] = set()
        """URNs that the program has registered.

        A later replacement does not include them as dependents.
        """
        self.replaced: set[str] = set()

    # -- at the end of a run -------------------------------------------------------------------

    async def delete_all(self, condemned: Sequence[StoredResource]) -> None:
        """Delete each resource after all resources that refer to it. Show failures.

        If one of the resources is protected, delete no resource.
        """
        try:
            planning.refuse_deleting_protected(condemned, self._work.options.settings)
        except EngineError as error:
            self._work.failed = True
            self._work.display.message(Severity.ERROR, str(error))
            if self._work.options.preview:  # the preview still shows all deletions
                for resource in reversed(condemned):
                    self._work.done(self._step(resource), 0.0)
            return
        self._going |= {r.urn for r in condemned if not (r.retain_on_delete or r.delete)}
        before = planning.order_of_deletion(condemned)
        tasks: dict[StoredResource, asyncio.Task[bool]] = {}
        for resource in reversed(condemned):
            waits = [tasks[other] for other in before[resource]]
            tasks[resource] = asyncio.create_task(self._delete_after(waits, resource))
        await asyncio.gather(*tasks.values())

    async def _delete_after(self, waits: Sequence[asyncio.Task[bool]], old: StoredResource) -> bool:
        """Delete a resource, unless one of its dependents could not be deleted.

        ``waits`` are the deletions of the dependents. Return whether the resource is gone.
        """
        if not all(await asyncio.gather(*waits)):
            return False
        step = self._step(old)
        try:
            await self._remove(step, old)
        except Stopped:
            return False
        except EngineError as error:
            self._work.report(step, error)
            return False
        self._work.journal.drop(old)
        self._work.save()
        return True

    def _step(self, old: StoredResource) -> Step:
        if old.delete and old.urn in self.replaced:
            return Step(old.urn, Op.REPLACE, old.parent, note="deleting original", counts=False)
        if old.retain_on_delete and not is_provider(old.type) and old.custom:
            note = "removing from the state only"
            return Step(old.urn, Op.DELETE, old.parent, note=note, old=old)
        return Step(old.urn, Op.DELETE, old.parent, old=old)

    async def _remove(self, step: Step, old: StoredResource) -> None:
        """Let the provider delete the resource, if the resource exists outside the state."""
        self._work.go_on()
        if self._work.options.preview or not self._has_to_be_deleted(old):
            self._work.done(step, 0.0)
            return
        manager = await self._managers.of(old)

        def delete(operation: Operation) -> None:
            manager.delete(as_providers_see(old), operation)

        await self._work.run("deleting", step, old, delete)

    def _has_to_be_deleted(self, old: StoredResource) -> bool:
        return (
            old.custom
            and not is_provider(old.type)
            and not old.external
            and not old.pending_replacement
            and not old.retain_on_delete
            and old.deleted_with not in self._going
        )

    # -- before a replacement ------------------------------------------------------------------

    async def make_way(self, old: StoredResource) -> StoredResource:
        """Delete a resource before its replacement is created; return its new entry in the state.

        First delete the dependents that must be replaced together with the resource. Raises
        EngineError.
        """
        dependents = await self._lost_with(old)
        planning.refuse_deleting_protected(dependents, self._work.options.settings)
        for dependent in reversed(dependents):
            try:
                await self._remove_for_replacement(dependent)
            except EngineError as error:
                raise EngineError(
                    f"cannot be replaced, because the resource {short(dependent.urn)}, which"
                    f" depends on it, must be deleted first; this deletion failed: {error}"
                ) from error
        return await self._remove_for_replacement(old)

    async def settled(self, urn: str) -> None:
        """Wait until a running removal of the resource, if any, has ended."""
        removal = self._underway.get(urn)
        if removal is not None:
            await removal

    async def _lost_with(self, root: StoredResource) -> list[StoredResource]:
        """Return the dependents that are replaced together with ``root``, in the state's order."""
        lost: list[StoredResource] = []
        urns = {root.urn}
        for old in self._work.journal.left():
            within_reach = planning.may_be_dependent(old, self.decided)
            if old.urn not in urns and within_reach and await self._goes_along(old, urns):
                lost.append(old)
                urns.add(old.urn)
        return [resource for resource in lost if not resource.pending_replacement]

    async def _goes_along(self, old: StoredResource, replaced: set[str]) -> bool:
        if planning.goes_with(old, replaced):
            return True
        inputs = planning.inputs_without(old, replaced)
        if inputs is None:
            return False
        manager = await self._managers.of(old)
        diff = await self._work.ask(manager.diff, as_providers_see(old), plain_properties(inputs))
        goal = Goal(old.type, name_of(old.urn), True, replace_on_changes=old.replace_on_changes)
        return planning.plan(goal, old, diff).op is Op.REPLACE

    async def _remove_for_replacement(self, old: StoredResource) -> StoredResource:
        removal = asyncio.get_running_loop().create_future()
        self._underway[old.urn] = removal
        self._going.add(old.urn)
        step = Step(old.urn, Op.REPLACE, old.parent, note="deleting original", counts=False)
        try:
            await self._remove(step, old)
            removed = replace(old, pending_replacement=True)
            self._work.journal.amend(old, removed)
            self._work.save()
            return removed
        finally:
            removal.set_result(None)
