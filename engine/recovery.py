"""Find the outcome of operations that an interrupted run did not finish."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine import providers
from engine.events import Severity
from engine.managers import Managers
from engine.state import Pending, StoredResource
from engine.urns import short
from engine.values import plain_properties
from engine.work import Work

_INTERRUPTED: Final = "an earlier run was interrupted during this operation"


async def recover(
    interrupted: tuple[Pending, ...], work: Work, managers: Managers
) -> dict[str, StoredResource]:
    """Make the state match the resources that exist. Raises EngineError if a provider fails.

    Mark a resource that was being created or updated, so that this run updates it.

    Return, by URN, the resources for which the provider cannot say whether they exist. Their
    operations stay pending. This run creates these resources again with the same generated names.
    If an object already exists, its provider recognizes the object and takes it over.
    """
    unknown: dict[str, StoredResource] = {}
    for pending in interrupted:
        if pending.kind == "creating":
            if not await _after_creation(pending.resource, work, managers):
                unknown[pending.resource.urn] = pending.resource
                continue
        elif pending.kind == "updating":
            _after_update(pending.resource, work)
        elif pending.kind == "deleting":
            await _after_deletion(pending.resource, work, managers)
        work.journal.end(pending.resource)
    if interrupted:
        work.save()
    return unknown


async def _after_creation(begun: StoredResource, work: Work, managers: Managers) -> bool:
    """Return whether the outcome is known. If the resource exists, add it to the state."""
    manager = await managers.of(begun)
    found = await work.ask(
        manager.read, begun.type, begun.urn, begun.id, plain_properties(begun.inputs), {}
    )
    if found is None:
        return True
    if not found[0]:
        return False
    if work.journal.find(begun.urn, found[0]) is not None:
        return True
    work.display.message(
        Severity.INFO,
        "an interrupted run created this resource; this run takes it over",
        begun.urn,
    )
    names = manager.secret_outputs(begun.type) | frozenset(begun.additional_secret_outputs)
    exists = replace(
        begun,
        id=found[0],
        outputs=providers.with_secrecy(found[2], begun.inputs, names),
        init_errors=(_INTERRUPTED,),
        # If the state still has the original, delete this replacement, because this run creates a
        # new one.
        delete=_half_of_a_replacement(begun, work),
    )
    work.journal.append(exists)
    return True


def _half_of_a_replacement(begun: StoredResource, work: Work) -> bool:
    old = work.journal.old(begun.urn)
    return old is not None and not old.pending_replacement


def _after_update(begun: StoredResource, work: Work) -> None:
    old = work.journal.old(begun.urn)
    if old is not None:
        work.journal.amend(old, replace(old, init_errors=(*old.init_errors, _INTERRUPTED)))


async def _after_deletion(begun: StoredResource, work: Work, managers: Managers) -> None:
    old = work.journal.find(begun.urn, begun.id)
    if old is None or old.external:
        return
    manager = await managers.of(old)
    found = await work.ask(
        manager.read,
        old.type,
        old.urn,
        old.id,
        plain_properties(old.inputs),
        plain_properties(old.outputs),
    )
    if found is None:
        work.display.message(
            Severity.INFO,
            f"{short(old.urn)}: an interrupted run deleted this resource; this run removes it"
            " from the state",
        )
        work.journal.drop(old)
