"""A stack's state in the format of Pulumi's checkpoints (version 3), which Pulumi reads too.

The names of fields and the order of resources are Pulumi's: a resource follows all resources that
it refers to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from engine.errors import EngineError
from engine.secrets import PassphraseCrypter, seal, unseal
from engine.urns import STACK_TYPE, split_reference
from engine.values import SECRET, SIGNATURE, Properties, Secret, Value

VERSION: Final = 3  # version of checkpoints
# A version of Pulumi that writes this format. Its SHA-256 digest is the manifest's `magic`.
_ENGINE_VERSION: Final = "3.272.0"


@dataclass(frozen=True, eq=False)
class StoredResource:
    """A resource in the state. Timeouts are in seconds; times are RFC 3339.

    Instances are compared by identity, not by URN: a URN may occur twice, for the current resource
    and for an old one that is marked for deletion (``delete``).
    """

    urn: str
    type: str
    custom: bool
    id: str = ""
    inputs: Properties = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    parent: str = ""
    provider: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    protect: bool = False
    external: bool = False
    delete: bool = False
    taint: bool = False
    pending_replacement: bool = False
    retain_on_delete: bool = False
    deleted_with: str = ""
    replace_with: tuple[str, ...] = ()
    init_errors: tuple[str, ...] = ()
    additional_secret_outputs: tuple[str, ...] = ()
    custom_timeouts: Mapping[str, float] = field(default_factory=dict)
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    replacement_trigger: Value = None
    created: str = ""
    modified: str = ""
    carried: Mapping[str, Any] = field(default_factory=dict)
    """Fields that Pulumi wrote and this engine keeps unchanged."""

    def references(self) -> Iterable[str]:
        """Yield the URNs of resources that this resource needs.

        They must be created before this resource, and deleted after it.
        """
        yield from filter(None, (self.parent, self.deleted_with))
        if self.provider:
            yield split_reference(self.provider)[0]
        yield from self.dependencies
        yield from self.replace_with
        for urns in self.property_dependencies.values():
            yield from urns


_TUPLES: Final = {
    "dependencies": "dependencies",
    "initErrors": "init_errors",
    "additionalSecretOutputs": "additional_secret_outputs",
    "ignoreChanges": "ignore_changes",
    "replaceOnChanges": "replace_on_changes",
    "replaceWith": "replace_with",
}
_SCALARS: Final = {
    "id": "id",
    "parent": "parent",
    "provider": "provider",
    "protect": "protect",
    "external": "external",
    "delete": "delete",
    "taint": "taint",
    "pendingReplacement": "pending_replacement",
    "retainOnDelete": "retain_on_delete",
    "deletedWith": "deleted_with",
    "created": "created",
    "modified": "modified",
}
_OWN: Final = frozenset(
    {
        *("urn", "custom", "type", "inputs", "outputs", "propertyDependencies"),
        *("customTimeouts", "replacementTrigger"),
        *_TUPLES,
        *_SCALARS,
    }
)


def to_json(resource: StoredResource, sealed: Callable[[Value], Any]) -> dict[str, Any]:
    """Return the resource in the checkpoint's format.

    ``sealed`` converts a value to JSON and encrypts the secrets in it.
    """
    document: dict[str, Any] = {
        "urn": resource.urn,
        "custom": resource.custom,
        "type": resource.type,
        "inputs": sealed(resource.inputs),
        "outputs": sealed(resource.outputs),
        "propertyDependencies": {
            key: list(urns) for key, urns in sorted(resource.property_dependencies.items())
        },
        "customTimeouts": dict(resource.custom_timeouts),
        "replacementTrigger": sealed(resource.replacement_trigger),
        **{key: getattr(resource, name) for key, name in _SCALARS.items()},
        **{key: list(getattr(resource, name)) for key, name in _TUPLES.items()},
        **resource.carried,
    }
    required = ("urn", "custom", "type")
    return {key: value for key, value in document.items() if key in required or _is_written(value)}


def _is_written(value: Any) -> bool:
    """Return whether a field is written: like Pulumi, leave out false and empty values."""
    return value is not None and value is not False and value not in ("", [], {})


def from_json(document: Mapping[str, Any], unsealed: Callable[[Any], Value]) -> StoredResource:
    """Read a resource of a checkpoint."""
    inputs = unsealed(document.get("inputs") or {})
    outputs = unsealed(document.get("outputs") or {})
    scalars: dict[str, Any] = {
        name: document[key] for key, name in _SCALARS.items() if key in document
    }
    tuples: dict[str, Any] = {name: tuple(document.get(key) or ()) for key, name in _TUPLES.items()}
    return StoredResource(
        urn=document["urn"],
        type=document["type"],
        custom=bool(document.get("custom")),
        inputs=inputs if isinstance(inputs, dict) else {},
        outputs=outputs if isinstance(outputs, dict) else {},
        property_dependencies={
            key: tuple(urns or ())
            for key, urns in (document.get("propertyDependencies") or {}).items()
        },
        custom_timeouts=document.get("customTimeouts") or {},
        replacement_trigger=unsealed(document.get("replacementTrigger")),
        carried={key: value for key, value in document.items() if key not in _OWN},
        **scalars,
        **tuples,
    )


@dataclass(frozen=True, eq=False)
class Pending:
    """An operation that was running when the state was written.

    ``kind`` is "creating", "updating" or "deleting".
    """

    kind: str
    resource: StoredResource


@dataclass(frozen=True)
class Snapshot:
    """The contents of a stack. A resource refers only to resources before it in the list."""

    resources: tuple[StoredResource, ...] = ()
    pending: tuple[Pending, ...] = ()

    @property
    def outputs(self) -> Properties:
        """The stack's outputs."""
        return next((r.outputs for r in self.resources if r.type == STACK_TYPE), {})


def now() -> str:
    """Return the time in the state's format."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Sealer:
    """Converts resources to JSON.

    It converts each resource only once, and then reuses the result.
    """

    def __init__(self, crypter: PassphraseCrypter | None) -> None:
        self.crypter = crypter
        self._written: dict[StoredResource, dict[str, Any]] = {}

    def _seal(self, value: Value) -> Any:
        return seal(value, self.crypter) if self.crypter else _without_secrets(value)

    def write(self, resource: StoredResource) -> dict[str, Any]:
        """Return the resource as JSON. Raises EngineError if a secret needs a passphrase."""
        if resource not in self._written:
            self._written[resource] = to_json(resource, self._seal)
        return self._written[resource]

    def deployment(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the snapshot as JSON, in the format of `deployment` in `pulumi stack export`."""
        document: dict[str, Any] = {
            "manifest": {
                "time": now(),
                "magic": hashlib.sha256(_ENGINE_VERSION.encode()).hexdigest(),
                "version": _ENGINE_VERSION,
            }
        }
        if self.crypter:
            document["secrets_providers"] = {
                "type": "passphrase",
                "state": {"salt": self.crypter.state},
            }
        if snapshot.resources:
            document["resources"] = [self.write(resource) for resource in snapshot.resources]
        if snapshot.pending:
            document["pending_operations"] = [
                {"resource": self.write(pending.resource), "type": pending.kind}
                for pending in snapshot.pending
            ]
        document["metadata"] = {}
        return document


def _without_secrets(value: Value) -> Any:
    if isinstance(value, Secret):
        raise EngineError(
            "the stack has secrets, but no passphrase is set; set PULUMI_CONFIG_PASSPHRASE to the"
            " passphrase, or PULUMI_CONFIG_PASSPHRASE_FILE to a file with it"
        )
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return value


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a state file, with secrets still encrypted."""

    salt: str | None
    deployment: dict[str, Any]

    def open(self, crypter: PassphraseCrypter | None) -> Snapshot:
        """Return the state's contents; without a crypter, its secrets are empty.

        Raises EngineError if a secret cannot be read.
        """

        def unsealed(value: Any) -> Value:
            return unseal(value, crypter) if crypter else _emptied(value)

        return Snapshot(
            tuple(from_json(entry, unsealed) for entry in self.deployment.get("resources") or ()),
            tuple(
                Pending(entry["type"], from_json(entry["resource"], unsealed))
                for entry in self.deployment.get("pending_operations") or ()
            ),
        )


def _emptied(stored: Any) -> Value:
    """Return a stored value in which each encrypted secret is replaced by an empty one."""
    if isinstance(stored, list):
        return [_emptied(item) for item in stored]
    if not isinstance(stored, dict):
        value: Value = stored
        return value
    if stored.get(SIGNATURE) == SECRET:
        return Secret(None)
    return {key: _emptied(item) for key, item in stored.items()}


def in_the_clear(stored: Any, crypter: PassphraseCrypter | None) -> Any:
    """Decrypt JSON of the state, as ``pulumi stack export --show-secrets`` does.

    Raises EngineError.
    """
    if isinstance(stored, list):
        return [in_the_clear(item, crypter) for item in stored]
    if not isinstance(stored, dict):
        return stored
    if crypter is not None and stored.get(SIGNATURE) == SECRET and "ciphertext" in stored:
        return {SIGNATURE: SECRET, "plaintext": crypter.decrypt(stored["ciphertext"])}
    return {key: in_the_clear(item, crypter) for key, item in stored.items()}
