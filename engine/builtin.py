"""Resources that the engine itself manages: components and providers."""

from __future__ import annotations

import uuid
from typing import Final

from engine.providers import Diff, Operation, Resource
from engine.values import Properties, changed_paths, format_path

_INTERNAL: Final = "__internal"  # Pulumi's key for a provider's inputs that are not its config


class Builtin:
    """Components, which exist only in the state."""

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        return news

    def diff(self, old: Resource, news: Properties) -> Diff:
        """Report every difference as an update."""
        return Diff(tuple(format_path(path) for path in changed_paths(old.inputs, news)))

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Return an empty id and no outputs, because the program registers the outputs later."""
        return "", {}

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        return old.outputs

    def delete(self, old: Resource, op: Operation) -> None:
        """Do nothing, because a component exists only in the state."""

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        return None

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        return old.outputs if old else {}

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        """Return no names, because only the program marks a component's values as secret."""
        return frozenset()


class ProviderResources(Builtin):
    """Providers, which Pulumi also stores as resources.

    The inputs of such a resource are the provider's config. Its id is random, and never changes.
    """

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Return a new id and the config. Resources refer to the provider by this id."""
        return str(uuid.uuid4()), provider_config(inputs)

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        return provider_config(news)

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        return provider_config(inputs)


def provider_inputs(config: Properties, version: str) -> Properties:
    """Return a provider's inputs as the state stores them."""
    inputs: Properties = {_INTERNAL: {}, **config}
    if version:
        inputs["version"] = version
    return inputs


def provider_config(inputs: Properties) -> Properties:
    return {key: value for key, value in inputs.items() if key != _INTERNAL}
