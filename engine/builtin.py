"""What the engine itself provides: components, and providers as resources of the program."""

from __future__ import annotations

import uuid
from typing import Final

from engine.providers import Diff, Operation, Resource
from engine.values import Properties, changed_paths, format_path

_INTERNAL: Final = "__internal"  # where Pulumi keeps what is no config of the provider's


class Builtin:
    """Components: they exist in the state alone."""

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        """Whatever the program says."""
        return news

    def diff(self, old: Resource, news: Properties) -> Diff:
        """Any difference is an update."""
        return Diff(tuple(format_path(path) for path in changed_paths(old.inputs, news)))

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """No id; the outputs follow from the program."""
        return "", {}

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        """As they were, until the program says otherwise."""
        return old.outputs

    def delete(self, old: Resource, op: Operation) -> None:
        """There is nothing outside the state."""

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        """There is nothing outside the state."""
        return None

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """As they are."""
        return old.outputs if old else {}

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        """Only what the program marks."""
        return frozenset()


class ProviderResources(Builtin):
    """Providers as resources: their inputs are config, their ids made up once."""

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """An id by which resources refer to it."""
        return str(uuid.uuid4()), provider_config(inputs)

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        """The same provider with another config."""
        return provider_config(news)

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """Its config."""
        return provider_config(inputs)


def provider_inputs(config: Properties, version: str) -> Properties:
    """A provider's inputs as the state has them."""
    inputs: Properties = {_INTERNAL: {}, **config}
    if version:
        inputs["version"] = version
    return inputs


def provider_config(inputs: Properties) -> Properties:
    """The config in a provider's inputs."""
    return {key: value for key, value in inputs.items() if key != _INTERNAL}
