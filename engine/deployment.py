"""Make each resource match its goal, which is the resource as the program wants it.

The steps are: check the inputs, compare them with the state, plan an operation, and carry it out.
Planning runs in the event loop. Providers run in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard, TypeVar

from engine import planning, providers
from engine.aliases import Place, former_urns
from engine.builtin import provider_inputs
from engine.changes import changes
from engine.errors import EngineError, PartialFailure
from engine.events import Severity, Step
from engine.managers import Managers
from engine.paths import reset
from engine.planning import Goal, Op, Plan
from engine.policies import Policies, Subject
from engine.providers import Operation, Provider
from engine.recovery import recover
from engine.removal import Removal
from engine.show import in_full
from engine.state import StoredResource, now
from engine.urns import STACK_TYPE, is_provider, make_urn, short, split_reference
from engine.values import (
    UNKNOWN_STRING,
    Properties,
    mark_secret_like,
    plain_properties,
)
from engine.work import Stopped, Work, as_providers_see

T = TypeVar("T")


class Deployment:
    """One run on one stack. Call its methods only in the event loop's thread."""

    def __init__(self, work: Work, policies: Policies) -> None:
        self._work = work
        self._policies = policies
        self._journal = work.journal
        self._interrupted = work.journal.snapshot().pending
        self._managers = Managers(work)
        self._removal = Removal(work, self._managers)
        self._begun: dict[str, StoredResource] = {}  # maybe created by an interrupted run
        self._goals: dict[str, Goal] = {}
        self._stored = {resource.urn for resource in work.journal.left()}
        self._renamed: dict[str, str] = {}  # from new URN to former URN in the state
        self._taken_over: dict[str, str] = {}  # from former URN to new URN
        self._default_providers: dict[str, asyncio.Task[str]] = {}
        self._stack_outputs: Properties | None = None

    async def recover(self) -> None:
        """Find the outcome of operations that an earlier run did not finish. Raises EngineError."""
        self._begun = await recover(self._interrupted, self._work, self._managers)

    # -- registering ---------------------------------------------------------------------------

    def go_on(self) -> None:
        """Raise Stopped if the deployment has stopped."""
        self._work.go_on()

    async def register(self, goal: Goal) -> StoredResource:
        """Make a resource match its goal. Return its new state; in a preview, its planned state.

        Raises Stopped if the deployment has stopped.
        """
        self._work.go_on()
        goal = planning.inherited(goal, self._goals.get(goal.parent))
        urn = self._urn(goal)
        try:
            return await self._register(urn, goal)
        except EngineError as error:
            self._work.report(Step(urn, Op.SAME, goal.parent), error)
            raise Stopped from error

    def _urn(self, goal: Goal) -> str:
        return goal.urn(self._work.options.stack, self._work.options.project)

    async def _register(self, urn: str, goal: Goal) -> StoredResource:
        self._refuse_second(urn, goal)
        goal = self._goals[urn] = await self._with_provider(goal)
        manager = await self._managers.manager(goal.type, goal.provider)
        old = self._claim(urn, goal)
        inputs = await self._checked(manager, urn, goal, old)
        await self._judged(urn, goal, inputs)
        diff = providers.Diff()
        if _is_comparable(old):
            diff = await self._work.ask(
                manager.diff, as_providers_see(old), plain_properties(inputs)
            )
        if old is not None:
            # Wait, then read `old` again: another resource's replacement may be deleting it.
            await self._removal.settled(old.urn)
            old = self._journal.old(old.urn)
        self._removal.decided.add(urn)
        planned = planning.plan(
            goal,
            old,
            diff,
            replaced=self._removal.replaced,
            provider_changed=old is not None and self._managers.changed(goal, old),
        )
        if self._work.options.refresh and await self._is_gone(goal, manager, old):
            planned = Plan(Op.CREATE)
        new = _wanted(urn, goal, inputs, old)
        return await self._carry_out(planned, goal, manager, new, old)

    async def _is_gone(self, goal: Goal, manager: Provider, old: StoredResource | None) -> bool:
        """Return whether a stored resource no longer exists, because a person deleted it."""
        if not goal.custom or is_provider(goal.type) or not _is_comparable(old):
            return False
        seen = as_providers_see(old)
        found = await self._work.ask(
            manager.read, old.type, old.urn, old.id, seen.inputs, seen.outputs
        )
        return found is None

    def _refuse_second(self, urn: str, goal: Goal) -> None:
        if urn in self._goals:
            raise EngineError(
                "the program creates this resource twice; resources with the same type and parent"
                " need different names: rename one of them"
            )
        if urn in self._taken_over:
            raise EngineError(
                f"an alias of {short(self._taken_over[urn])} names this resource and has taken over"
                " its state; remove the alias, or remove this resource from the program"
            )
        if goal.parent and goal.parent not in self._goals:
            raise EngineError(
                f"its parent {short(goal.parent)} does not exist yet; in the program, create the"
                " parent before this resource"
            )
        self._goals[urn] = goal

    def _claim(self, urn: str, goal: Goal) -> StoredResource | None:
        """Return the goal's resource from the state. Search by its URN, then by its aliases."""
        own = self._journal.old(urn)
        if own is not None:
            return own
        options = self._work.options
        place = Place(options.stack, options.project, goal.parent, goal.type, goal.name)
        for former in former_urns(place, goal.aliases, self._renamed):
            if former in self._goals and former in self._stored:
                raise EngineError(
                    f"its alias {short(former)} names another resource of this program; remove the"
                    " alias"
                )
            old = self._journal.old(former)
            if old is not None:
                self._taken_over[former] = urn
                self._renamed[urn] = former
                return old
        return None

    async def _with_provider(self, goal: Goal) -> Goal:
        """Return the goal with a reference to its provider.

        If the goal is itself a provider, return it with its inputs as the state stores them.
        """
        if not goal.custom or (goal.provider and not is_provider(goal.type)):
            return goal
        if is_provider(goal.type):
            return replace(goal, provider="", inputs=provider_inputs(goal.inputs, goal.version))
        default = self._managers.default(goal)
        urn = self._urn(default)
        if urn not in self._default_providers:
            task = asyncio.create_task(self._reference(urn, default))
            self._default_providers[urn] = task
        return replace(goal, provider=await asyncio.shield(self._default_providers[urn]))

    async def _reference(self, urn: str, default: Goal) -> str:
        provider = await self._register(urn, default)
        return f"{provider.urn}::{provider.id}"

    async def _checked(
        self, manager: Provider, urn: str, goal: Goal, old: StoredResource | None
    ) -> Properties:
        """Return the inputs to store, including values that the provider generated for ``old``."""
        wanted, known = goal.inputs, Properties()
        if _is_comparable(old):
            wanted, known = reset(goal.inputs, old.inputs, goal.ignore_changes), old.inputs
        elif urn in self._begun:
            known = self._begun[urn].inputs
        checked = await self._work.ask(
            manager.check, goal.type, urn, plain_properties(known), plain_properties(wanted)
        )
        return providers.with_secrecy(checked, wanted, manager.secret_outputs(goal.type))

    # -- policies ------------------------------------------------------------------------------

    async def _judged(self, urn: str, goal: Goal, inputs: Properties) -> None:
        """Apply the policies to a resource.

        Raises EngineError on a mandatory violation, except in a preview.
        """
        broken = await self._policies.analyze(self._subject(urn, goal, inputs))
        if broken and not self._work.options.preview:
            raise EngineError(
                f"violates the mandatory policies {', '.join(broken)}; this run reports each"
                " violation: correct the resource in the program or in the stack file"
            )

    def _subject(self, urn: str, goal: Goal, properties: Properties) -> Subject:
        provider = self.registered(split_reference(goal.provider)[0]) if goal.provider else None
        # Omit keys that begin with "__": they are internal to engines and providers.
        shown = {key: value for key, value in properties.items() if not key.startswith("__")}
        return Subject(urn, goal, shown, provider)

    async def judge(self) -> None:
        """Apply the policies to the whole stack; in a preview, to the planned stack.

        Raises EngineError if mandatory policies are violated.
        """
        options = self._work.options
        stack = make_urn(
            options.stack, options.project, "", STACK_TYPE, f"{options.project}-{options.stack}"
        )
        found = ((self.registered(urn), goal) for urn, goal in self._goals.items())
        subjects = [self._subject(r.urn, goal, r.outputs) for r, goal in found if r is not None]
        await self._policies.analyze_stack(subjects, stack)
        broken = self._policies.broken
        if broken:
            raise EngineError(
                f"the stack violates the mandatory policies {', '.join(broken)}; this run reports"
                " each violation: correct the program or the stack file"
            )

    # -- carrying out a plan -------------------------------------------------------------------

    async def _carry_out(
        self,
        planned: Plan,
        goal: Goal,
        manager: Provider,
        new: StoredResource,
        old: StoredResource | None,
    ) -> StoredResource:
        if old is None or planned.op is Op.CREATE:
            step = Step(new.urn, Op.CREATE, new.parent, new=new)
            return await self._create(step, manager, new, old)
        if planned.op is Op.SAME:
            outputs = mark_secret_like(old.outputs, _secret(new, manager, old.outputs))
            assert isinstance(outputs, dict)  # noqa: S101 - marking keeps the shape
            new = replace(new, id=old.id, outputs=outputs)
            return self._settle(Step(new.urn, Op.SAME, new.parent), new, old)
        if planned.op is Op.UPDATE:
            return await self._update(planned, manager, new, old)
        return await self._replace(planned, goal, manager, new, old)

    async def _create(
        self,
        step: Step,
        manager: Provider,
        new: StoredResource,
        old: StoredResource | None,
        *,
        condemn: bool = False,
    ) -> StoredResource:
        """Create ``new``, which replaces ``old`` in the state.

        If ``condemn`` is true, ``old`` stays in the state, marked for deletion.
        """
        inputs = plain_properties(new.inputs)
        if self._work.options.preview:
            foreseen = await self._work.ask(manager.preview_outputs, new.type, inputs, None)
            new = replace(
                new,
                id=UNKNOWN_STRING if is_provider(new.type) else "",
                outputs=_secret(new, manager, foreseen),
            )
            return self._settle(step, new, old, condemn=condemn)

        def create(operation: Operation) -> StoredResource:
            id_, outputs = manager.create(new.type, new.urn, inputs, operation)
            return replace(
                new,
                id=id_,
                outputs=_secret(new, manager, outputs),
                created=now(),
                modified=now(),
            )

        return await self._operate("creating", step, manager, new, old, create, condemn)

    async def _update(
        self, planned: Plan, manager: Provider, new: StoredResource, old: StoredResource
    ) -> StoredResource:
        changed = changes(old.inputs, new.inputs, planned, in_full)
        step = Step(new.urn, Op.UPDATE, new.parent, changed, old=old, new=new)
        inputs = plain_properties(new.inputs)
        new = replace(new, id=old.id)
        before = replace(as_providers_see(old), urn=new.urn, type=new.type)
        if self._work.options.preview:
            foreseen = await self._work.ask(manager.preview_outputs, new.type, inputs, before)
            new = replace(new, outputs=_secret(new, manager, foreseen))
            return self._settle(step, new, old)

        def update(operation: Operation) -> StoredResource:
            outputs = manager.update(before, inputs, operation)
            return replace(new, outputs=_secret(new, manager, outputs), modified=now())

        return await self._operate("updating", step, manager, new, old, update)

    async def _replace(
        self,
        planned: Plan,
        goal: Goal,
        manager: Provider,
        new: StoredResource,
        old: StoredResource,
    ) -> StoredResource:
        # Check without the old inputs, because the replacement needs newly generated names.
        new = replace(new, inputs=await self._checked(manager, new.urn, goal, None))
        changed = changes(old.inputs, new.inputs, planned, in_full)
        step = Step(new.urn, Op.REPLACE, new.parent, changed, old=old, new=new)
        try:
            planning.refuse_replacing_protected(old, goal.protect, self._work.options.settings)
        except EngineError as error:
            self._work.report(step, error)
            raise Stopped from error
        self._removal.replaced |= {new.urn, old.urn}
        if planned.delete_first and not old.pending_replacement:
            old = await self._removal.make_way(old)
        condemn = not old.pending_replacement
        return await self._create(step, manager, new, old, condemn=condemn)

    async def _operate(
        self,
        kind: str,
        step: Step,
        manager: Provider,
        new: StoredResource,
        old: StoredResource | None,
        call: Callable[[Operation], StoredResource],
        condemn: bool = False,
    ) -> StoredResource:
        """Run a create or update, and record its outcome, even after a partial failure."""
        try:
            new = await self._work.run(kind, step, new, call)
        except PartialFailure as error:
            half = replace(
                new,
                id=error.id,
                outputs=_secret(new, manager, error.outputs),
                init_errors=(error.reason,),
                created=new.created or now(),
                modified=now(),
            )
            self._record(half, old, condemn)
            raise
        self._record(new, old, condemn)
        return new

    def _record(self, new: StoredResource, old: StoredResource | None, condemn: bool) -> None:
        self._journal.settle(new, old, condemn=condemn)
        begun = self._begun.pop(new.urn, None)
        if begun is not None:
            self._journal.end(begun)
        self._work.save()

    def _settle(
        self,
        step: Step,
        new: StoredResource,
        old: StoredResource | None,
        *,
        condemn: bool = False,
    ) -> StoredResource:
        """Record a step that runs no operation: nothing changes, or this is a preview."""
        self._journal.settle(new, old, condemn=condemn)
        self._work.done(step, 0.0)
        return new

    # -- reading -------------------------------------------------------------------------------

    async def read(self, goal: Goal, resource_id: str) -> StoredResource:
        """Read a resource that this stack does not manage. Raises Stopped if it does not exist."""
        self._work.go_on()
        urn = self._urn(goal)
        try:
            return await self._read(urn, goal, resource_id)
        except EngineError as error:
            self._work.report(Step(urn, Op.READ, goal.parent), error)
            raise Stopped from error

    async def _read(self, urn: str, goal: Goal, resource_id: str) -> StoredResource:
        self._refuse_second(urn, goal)
        goal = await self._with_provider(goal)
        manager = await self._managers.manager(goal.type, goal.provider)
        self._removal.decided.add(urn)
        old = self._journal.old(urn)
        step = Step(urn, Op.READ, goal.parent)
        if resource_id == UNKNOWN_STRING:  # the resource does not exist yet
            new = replace(_wanted(urn, goal, goal.inputs, old), external=True)
            return self._settle(step, new, old)
        found = await self._work.ask(
            manager.read, goal.type, urn, resource_id, plain_properties(goal.inputs)
        )
        if found is None:
            raise EngineError(
                f"no resource with the id {resource_id!r} exists; correct the id that the program"
                " uses to look up the resource"
            )
        new = _wanted(urn, goal, found[1], old)
        new = replace(new, id=found[0], external=True, outputs=_secret(new, manager, found[2]))
        # If the stack created the old resource, and the id differs, delete the old resource.
        # Otherwise, only drop the old resource's entry in the state.
        condemn = old is not None and not old.external and old.id != new.id
        return self._settle(step, new, old, condemn=condemn)

    def registered(self, urn: str) -> StoredResource | None:
        """Return the resource if this run has settled it (see `Journal`), else None."""
        return self._journal.settled(urn)

    # -- outputs and the end -------------------------------------------------------------------

    async def register_outputs(self, urn: str, outputs: Properties) -> None:
        """Record a component's outputs. ``finish`` records the stack's own outputs."""
        self._work.go_on()
        current = self._journal.settled(urn)
        if current is None:
            raise EngineError(
                f"{short(urn)}: cannot record outputs, because the program has not created this"
                " component yet; call super().__init__() before register_outputs()"
            )
        if current.type == STACK_TYPE:
            self._stack_outputs = outputs
        else:
            self._journal.amend(current, replace(current, outputs=outputs))

    async def finish(self) -> None:
        """Delete resources that the program no longer has, and record the stack's outputs.

        Call this only after the program has ended. Failures are shown, not raised.
        """
        await self._removal.delete_all(self._journal.left())
        self._give_up_begun()
        for resource in self._journal.snapshot().resources:
            if resource.type == STACK_TYPE and self._stack_outputs is not None:
                self._journal.amend(resource, replace(resource, outputs=self._stack_outputs))
        self._work.save()

    async def destroy(self) -> None:
        """Delete all resources of the stack. Failures are shown, not raised."""
        await self._removal.delete_all(self._journal.snapshot().resources)
        self._give_up_begun()
        self._work.save()

    def _give_up_begun(self) -> None:
        """Warn about resources that an interrupted run may have created."""
        for begun in self._begun.values():
            self._journal.end(begun)
            self._work.display.message(
                Severity.WARNING,
                "an interrupted run may have created this resource, but did not record its id;"
                " check whether the resource exists, and if it exists, delete it by hand",
                begun.urn,
            )

    def fail(self, reason: str = "") -> None:
        """Stop the deployment because of a failure that no single resource caused."""
        self._work.failed = True
        if reason:
            self._work.display.message(Severity.ERROR, reason)


def _is_comparable(old: StoredResource | None) -> TypeGuard[StoredResource]:
    """Return whether the stack manages ``old`` and new inputs can be compared with it."""
    return old is not None and not old.external and not old.pending_replacement


def _wanted(urn: str, goal: Goal, inputs: Properties, old: StoredResource | None) -> StoredResource:
    return StoredResource(
        urn=urn,
        type=goal.type,
        custom=goal.custom,
        inputs=inputs,
        parent=goal.parent,
        provider=goal.provider if goal.custom else "",
        dependencies=goal.dependencies,
        property_dependencies=goal.property_dependencies,
        protect=bool(goal.protect),
        retain_on_delete=bool(goal.retain_on_delete),
        deleted_with=goal.deleted_with,
        replace_with=goal.replace_with,
        replacement_trigger=goal.replacement_trigger,
        additional_secret_outputs=goal.additional_secret_outputs,
        custom_timeouts=goal.custom_timeouts,
        ignore_changes=goal.ignore_changes,
        replace_on_changes=goal.replace_on_changes,
        created=old.created if old else "",
        modified=old.modified if old else "",
    )


def _secret(new: StoredResource, manager: Provider, outputs: Properties) -> Properties:
    """Return the outputs with their secrets marked."""
    names = manager.secret_outputs(new.type) | frozenset(new.additional_secret_outputs)
    return providers.with_secrecy(outputs, new.inputs, names)
