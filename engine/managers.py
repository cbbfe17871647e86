"""Find the manager of a resource: the engine itself, or a provider whose config is in the state."""

from __future__ import annotations

import asyncio

from engine import providers
from engine.builtin import Builtin, ProviderResources, provider_config
from engine.errors import Absent, EngineError
from engine.events import Severity
from engine.planning import Goal
from engine.providers import Provider
from engine.state import StoredResource
from engine.urns import (
    PROVIDER_PREFIX,
    is_provider,
    package_of,
    provided_package,
    resource_type_of,
    short,
    split_reference,
)
from engine.values import UNKNOWN, Properties, plain_properties
from engine.work import Work


class Managers:
    """The providers of one run. Each is configured once, on first use."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._loading: dict[StoredResource, asyncio.Task[Provider]] = {}

    async def manager(self, resource_type: str, reference: str) -> Provider:
        """Return a resource's manager. ``reference`` names its provider; "" means no provider.

        Raises EngineError if the provider is unavailable.
        """
        if not reference:
            return ProviderResources() if is_provider(resource_type) else Builtin()
        stored = self._stored(reference)
        if stored not in self._loading:
            self._loading[stored] = asyncio.create_task(self._load(stored))
        return await asyncio.shield(self._loading[stored])

    async def of(self, resource: StoredResource) -> Provider:
        """Return the manager of a stored resource. Raises EngineError."""
        return await self.manager(resource.type, resource.provider)

    def _stored(self, reference: str) -> StoredResource:
        urn, provider_id = split_reference(reference)
        stored = self._work.journal.find(urn, provider_id)
        if stored is None:
            raise EngineError(
                f"its provider {short(urn)} is neither in the program nor in the state; in the"
                " program, create the provider before this resource"
            )
        return stored

    async def _load(self, stored: StoredResource) -> Provider:
        package = provided_package(stored.type)
        config = plain_properties(provider_config(stored.inputs))
        preview = self._work.options.preview

        def load(config: Properties) -> Provider:
            return providers.load(package, config, preview=preview)

        try:
            return await self._work.ask(load, config)
        except Absent as error:
            if not preview:
                raise
            # This run may create the provider's target, such as a cluster: plan without it.
            note = f"{error}; the preview continues, but compares the program only with the state"
            self._work.display.message(Severity.WARNING, note, stored.urn)
            return await self._work.ask(load, {**config, error.key: UNKNOWN})

    def default(self, goal: Goal) -> Goal:
        """Return the default provider of the goal's package, configured from the stack's config."""
        package = package_of(goal.type)
        suffix = f"_{goal.version}".replace(".", "_") if goal.version else ""
        prefix = f"{package}:"
        config: Properties = {
            key.removeprefix(prefix): value
            for key, value in self._work.options.config.items()
            if key.startswith(prefix)
        }
        return Goal(
            PROVIDER_PREFIX + package,
            f"default{suffix}",
            custom=True,
            inputs=config,
            version=goal.version,
        )

    def changed(self, goal: Goal, old: StoredResource) -> bool:
        """Return whether the goal's provider has another type than the provider in the state.

        The goal's provider then cannot manage the stored resource.
        """
        if goal.provider == old.provider or is_provider(goal.type):
            return False
        if not goal.provider or not old.provider:
            return True
        before, after = split_reference(old.provider)[0], split_reference(goal.provider)[0]
        return resource_type_of(before) != resource_type_of(after)
