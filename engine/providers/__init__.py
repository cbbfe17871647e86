"""The interface that each provider implements, and the function that loads a provider."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.errors import EngineError
from engine.values import Properties, as_secret, mark_secret_like

__all__ = ["Diff", "Operation", "Properties", "Provider", "Resource", "load", "with_secrecy"]

INPUTS_ECHO: Final = "__inputs"  # key under which a provider's outputs repeat the inputs


@dataclass(frozen=True)
class Diff:
    """Differences between stored and new inputs, as property paths like ``spec.replicas``."""

    changed: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    delete_before_replace: bool = False


@dataclass(frozen=True)
class Resource:
    """A resource in the state; no value in it is a ``Secret``."""

    urn: str
    type: str
    name: str
    id: str | None
    inputs: Properties
    outputs: Properties


def _no_status(_line: str) -> None:
    return None


@dataclass
class Operation:
    """Settings of one create, update or delete.

    ``timeout`` is in seconds, 0 for the provider's default; ``status`` shows a line of progress.
    """

    timeout: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)
    status: Callable[[str], None] = _no_status


class Provider(Protocol):
    """One configured provider. The engine calls it from several threads.

    In a preview, properties may contain ``UNKNOWN``. They never contain a ``Secret``: the engine
    removes secret markers before a call and adds them to the results. All methods may raise
    EngineError.
    """

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        """Return the inputs to store, with generated names and defaults.

        ``olds`` are the stored inputs of the resource, empty if there are none.
        Raises CheckError.
        """
        ...

    def diff(self, old: Resource, news: Properties) -> Diff:
        """Compare checked inputs with the stored resource."""
        ...

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Create the resource, wait until it is ready, and return its id and outputs.

        Raises PartialFailure if the resource exists but is not ready, and Cancelled if the user
        stops the operation before the resource exists.
        """
        ...

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        """Change the resource in place, wait until it is ready, and return the new outputs.

        Raises the same errors as ``create``.
        """
        ...

    def delete(self, old: Resource, op: Operation) -> None:
        """Delete the resource and wait until it is gone. A missing resource is not an error."""
        ...

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        """Return the current id, inputs and outputs, or None if the resource does not exist.

        ``inputs`` and ``outputs`` are the stored values. ``outputs`` is None if the resource is not
        in the state yet.
        """
        ...

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """Predict the outputs of a create (``old`` is None) or of an update."""
        ...

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        """Return the names of top-level inputs and outputs that are always secret."""
        ...


def with_secrecy(properties: Properties, like: Properties, always: frozenset[str]) -> Properties:
    """Return a provider's result, with ``Secret`` markers on its secret values.

    A value is secret if the program's inputs, ``like``, have a secret at the same path. Each
    top-level property named in ``always`` is secret too.
    """
    marked: Properties = {}
    for name, value in properties.items():
        if name in always:
            marked[name] = as_secret(value)
        elif name == INPUTS_ECHO and isinstance(value, dict):
            marked[name] = with_secrecy(value, like, always)
        else:
            marked[name] = mark_secret_like(value, like.get(name))
    return marked


def load(package: str, config: Properties, *, preview: bool) -> Provider:
    """Return the configured provider of a package.

    If the engine does not support the package, a preview gets a provider that can only plan. An
    update raises EngineError.
    """
    # Import on demand: a program without Kubernetes resources starts faster.
    if package == "random":
        from engine.providers.random import RandomProvider

        return RandomProvider()
    if package == "kubernetes":
        from engine.providers.kubernetes import KubernetesProvider

        return KubernetesProvider(config, preview=preview)
    if package == "command":
        from engine.providers.command import CommandProvider

        return CommandProvider()
    if preview:
        from engine.providers.planned import PlannedProvider

        return PlannedProvider()
    raise EngineError(
        f"provider {package!r}: not supported by this engine (supported: command, kubernetes,"
        " random); deploy this stack with the `pulumi` command"
    )
