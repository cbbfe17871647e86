"""Finds what manages a resource: the engine itself, or a provider configured as the state says."""

from __future__ import annotations

import asyncio
from typing import Final

from engine import providers
from engine.builtin import Builtin, ProviderResources, provider_config
from engine.errors import EngineError
from engine.planning import Goal
from engine.providers import Provider
from engine.providers.planned import PlannedProvider
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
from engine.values import Properties, plain_properties
from engine.work import Work

_CHARTS: Final = "kubernetes:helm.sh/"
"""Of a package that the engine has a provider for, what that one cannot make."""


class Managers:
    """The providers of one run. Each is configured once, when it is first needed."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._loading: dict[StoredResource, asyncio.Task[Provider]] = {}

    async def manager(self, resource_type: str, reference: str) -> Provider:
        """What manages a resource that refers to a provider, or "" for none.

        Raises EngineError where the provider cannot be had.
        """
        if self._work.options.preview and resource_type.startswith(_CHARTS):
            return PlannedProvider()
        if not reference:
            return ProviderResources() if is_provider(resource_type) else Builtin()
        stored = self._stored(reference)
        if stored not in self._loading:
            self._loading[stored] = asyncio.create_task(self._load(stored))
        return await asyncio.shield(self._loading[stored])

    async def of(self, resource: StoredResource) -> Provider:
        """What manages a stored resource. Raises EngineError."""
        return await self.manager(resource.type, resource.provider)

    def _stored(self, reference: str) -> StoredResource:
        urn, provider_id = split_reference(reference)
        stored = self._work.journal.find(urn, provider_id)
        if stored is None:
            raise EngineError(
                f"its provider {short(urn)} is neither in the program nor in the state; register"
                " it before what it manages"
            )
        return stored

    async def _load(self, stored: StoredResource) -> Provider:
        package = provided_package(stored.type)
        config = plain_properties(provider_config(stored.inputs))

        def load() -> Provider:
            return providers.load(package, config, preview=self._work.options.preview)

        return await self._work.ask(load)

    def default(self, goal: Goal) -> Goal:
        """The provider for a resource that names none: configured by the stack's config alone."""
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
        """Whether the provider that the program names cannot go on with the old resource."""
        if goal.provider == old.provider or is_provider(goal.type):
            return False
        if not goal.provider or not old.provider:
            return True
        before, after = split_reference(old.provider)[0], split_reference(goal.provider)[0]
        return resource_type_of(before) != resource_type_of(after)
