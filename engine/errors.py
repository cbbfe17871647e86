"""Errors that the engine shows to its user: one line each, with the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from engine.values import Value


class EngineError(Exception):
    """An error whose message the engine shows to the user: one line that says what to do."""


class WrongPassphrase(EngineError):  # noqa: N818 - named for the event
    """The passphrase does not decrypt the stack's secrets."""


class Absent(EngineError):  # noqa: N818
    """A provider cannot find its target, such as a cluster. The target may not exist yet.

    ``key`` is the provider's config key that names the target.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


class CheckError(EngineError):
    """An input that the provider does not accept.

    ``path`` is a property path ("spec.replicas"), or "" for the resource as a whole.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.property = path
        self.reason = reason


class PartialFailure(EngineError):  # noqa: N818
    """The resource exists, but is not ready.

    The engine stores the resource, and the next update continues with it.
    """

    def __init__(self, resource_id: str, outputs: Mapping[str, Value], reason: str) -> None:
        super().__init__(reason)
        self.id = resource_id
        self.outputs = dict(outputs)
        self.reason = reason


class Cancelled(EngineError):  # noqa: N818
    """The user stopped the operation before the resource existed."""

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(reason)


class CancelledPartway(PartialFailure, Cancelled):
    """The user stopped the operation when the resource existed but was not ready."""

    def __init__(
        self,
        resource_id: str,
        outputs: Mapping[str, Value],
        reason: str = "cancelled while waiting",
    ) -> None:
        PartialFailure.__init__(self, resource_id, outputs, reason)
