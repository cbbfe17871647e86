"""What the engine asks of a provider, and which providers there are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.errors import EngineError
from engine.values import Properties, as_secret, mark_secret_like

__all__ = ["Diff", "Operation", "Properties", "Provider", "Resource", "load", "with_secrecy"]

INPUTS_ECHO: Final = "__inputs"  # where a provider's outputs repeat the inputs


@dataclass(frozen=True)
class Diff:
    """What would change. Entries are property paths like ``spec.replicas``."""

    changed: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    delete_before_replace: bool = False


@dataclass(frozen=True)
class Resource:
    """A resource as the state holds it; no value in it is a ``Secret``."""

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
    """How one create, update or delete is run.

    ``timeout`` is in seconds, 0 for the provider's default; ``status`` shows a line of progress.
    """

    timeout: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)
    status: Callable[[str], None] = _no_status


class Provider(Protocol):
    """One configured provider. The engine calls it from several threads.

    Properties may hold ``UNKNOWN`` in a preview and never a ``Secret``: the engine takes secrecy
    off before a call and puts it back on the results. All methods raise EngineError.
    """

    def check(self, resource_type: str, urn: str, olds: Properties, news: Properties) -> Properties:
        """Inputs as they are to be stored (names made up, defaults filled in).

        ``olds`` are the stored inputs of the resource, empty where there is none.
        Raises CheckError.
        """
        ...

    def diff(self, old: Resource, news: Properties) -> Diff:
        """How checked inputs differ from the stored resource."""
        ...

    def create(
        self, resource_type: str, urn: str, inputs: Properties, op: Operation
    ) -> tuple[str, Properties]:
        """Make it and wait until it is ready: id and outputs.

        Raises PartialFailure where it exists but is not ready, Cancelled where stopped.
        """
        ...

    def update(self, old: Resource, news: Properties, op: Operation) -> Properties:
        """Change it in place and wait: the new outputs. Raises as ``create`` does."""
        ...

    def delete(self, old: Resource, op: Operation) -> None:
        """Remove it and wait until it is gone. One that is gone already is no error."""
        ...

    def read(
        self,
        resource_type: str,
        urn: str,
        resource_id: str,
        inputs: Properties,
        outputs: Properties | None = None,
    ) -> tuple[str, Properties, Properties] | None:
        """Id, inputs and outputs as they are now; None where it is gone.

        ``inputs`` and ``outputs`` are the stored ones; without them a resource is read that no
        state knows yet.
        """
        ...

    def preview_outputs(
        self, resource_type: str, inputs: Properties, old: Resource | None
    ) -> Properties:
        """Outputs of a create (``old`` is None) or update as far as they can be foreseen."""
        ...

    def secret_outputs(self, resource_type: str) -> frozenset[str]:
        """Top-level properties that are secret, in checked inputs and in outputs, always."""
        ...


def with_secrecy(properties: Properties, like: Properties, always: frozenset[str]) -> Properties:
    """A provider's plain result with its secrets marked again.

    Secret is what is secret at the same path in ``like``, the program's inputs, and each
    top-level property named in ``always``.
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
    """The provider of a package, configured.

    Of a package that the engine has none for, a preview gets one that plans. Raises EngineError.
    """
    # Imported on demand: a program without Kubernetes resources does not pay for its provider.
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
        f"package {package!r}: the engine has no provider for it (it has: command, kubernetes,"
        " random); deploy this stack with the `pulumi` command"
    )
