"""Property values of programs, providers and the state.

Pulumi's gRPC protocol sends all values as a protobuf ``Struct``. Values that a Struct cannot
express are objects with a signature key. This module converts them to Python values:
``Secret(value)`` is a secret, and ``UNKNOWN`` is a value that is known only after an update.
Source: the protocol's documentation of property values ("special values").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from google.protobuf import struct_pb2

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a signature, not a password
RESOURCE_REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
OUTPUT_VALUE: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_STRING: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

# Texts that stand for an unknown value. Pulumi has one for each kind of value.
_UNKNOWN_STRINGS: Final = frozenset(
    {
        UNKNOWN_STRING,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


class Unknown:
    """A value that is known only after an update; use the singleton ``UNKNOWN``."""

    _instance: Unknown | None = None

    def __new__(cls) -> Unknown:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __copy__(self) -> Unknown:
        return self

    def __deepcopy__(self, _memo: object) -> Unknown:
        return self


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value that is stored encrypted and never shown, even in its repr."""

    value: Value

    def __repr__(self) -> str:
        return "Secret(...)"


Value: TypeAlias = (
    "bool | int | float | str | list[Value] | dict[str, Value] | Secret | Unknown | None"
)
Properties: TypeAlias = dict[str, Value]
Path: TypeAlias = tuple[str | int, ...]


def from_struct(struct: struct_pb2.Struct) -> Properties:
    """Read a Struct. A reference to a resource becomes the resource's id; for a component, its URN.

    Objects with other signatures (assets, archives) stay as they are.
    """
    return {key: _from_wire(value) for key, value in struct.fields.items()}


def _from_wire(wire: struct_pb2.Value) -> Value:
    kind = wire.WhichOneof("kind")
    if kind == "string_value":
        text = wire.string_value
        return UNKNOWN if text in _UNKNOWN_STRINGS else text
    if kind == "struct_value":
        return _from_wire_object(wire.struct_value)
    if kind == "list_value":
        return [_from_wire(item) for item in wire.list_value.values]
    if kind == "bool_value":
        return bool(wire.bool_value)
    if kind == "number_value":
        return whole(wire.number_value)
    return None


def _from_wire_object(struct: struct_pb2.Struct) -> Value:
    fields = from_struct(struct)
    match fields.get(SIGNATURE):
        case None:
            return fields
        case signature if signature == SECRET:
            return as_secret(fields.get("value"))
        case signature if signature == OUTPUT_VALUE:
            value = fields.get("value", UNKNOWN)
            return as_secret(value) if fields.get("secret") is True else value
        case signature if signature == RESOURCE_REFERENCE:
            # A component's reference has no id. An empty id means: not created yet.
            if "id" not in fields:
                return fields["urn"]
            return fields["id"] or UNKNOWN
    return fields  # assets and archives: plain objects that the engine only forwards


def whole(number: float) -> int | float:
    """Convert a double without a fraction to an integer, because a Struct has only doubles."""
    return int(number) if number.is_integer() else number


def as_secret(value: Value) -> Secret:
    """Mark a value as secret; a secret stays as it is."""
    return value if isinstance(value, Secret) else Secret(value)


def to_struct(properties: Mapping[str, Value], keep_secrets: bool = True) -> struct_pb2.Struct:
    """Write a Struct. Without ``keep_secrets``, write a secret as its plain value."""
    struct = struct_pb2.Struct()
    _fill(struct, properties, keep_secrets)
    return struct


def _fill(struct: struct_pb2.Struct, properties: Mapping[str, Value], keep_secrets: bool) -> None:
    for key, value in properties.items():
        _to_wire(struct.fields[key], value, keep_secrets)


def _to_wire(wire: struct_pb2.Value, value: Value, keep_secrets: bool) -> None:
    if value is None:
        wire.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        wire.bool_value = value
    elif isinstance(value, int | float):
        wire.number_value = value
    elif isinstance(value, str):
        wire.string_value = value
    elif isinstance(value, Unknown):
        wire.string_value = UNKNOWN_STRING
    elif isinstance(value, Secret):
        if keep_secrets:
            fields = wire.struct_value.fields
            fields[SIGNATURE].string_value = SECRET
            _to_wire(fields["value"], value.value, keep_secrets)
        else:
            _to_wire(wire, value.value, keep_secrets)
    elif isinstance(value, dict):
        wire.struct_value.SetInParent()  # an empty object is still an object
        _fill(wire.struct_value, value, keep_secrets)
    else:
        wire.list_value.SetInParent()
        for item in value:
            _to_wire(wire.list_value.values.add(), item, keep_secrets)


def plain(value: Value) -> Value:
    """Return a copy of the value without secret markers."""
    if isinstance(value, Secret):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def plain_properties(properties: Mapping[str, Value]) -> Properties:
    """Apply ``plain`` to all properties."""
    return {key: plain(value) for key, value in properties.items()}


def contains_unknown(value: Value) -> bool:
    """Return whether the value, or anything inside it, is unknown."""
    return any(isinstance(item, Unknown) for item in _walk(value))


def _walk(value: Value) -> Iterator[Value]:
    yield value
    if isinstance(value, Secret):
        yield from _walk(value.value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item)


def mark_secret_like(new: Value, model: Value) -> Value:
    """Return ``new``, with a value marked as secret if ``model`` has a secret at its path.

    If ``new`` has no value at the path of a secret in ``model``, ignore this secret.
    """
    if isinstance(model, Secret):
        return as_secret(plain(new))
    if isinstance(new, Secret):
        return new
    if isinstance(new, dict) and isinstance(model, dict):
        return {
            key: mark_secret_like(item, model[key]) if key in model else item
            for key, item in new.items()
        }
    if isinstance(new, list) and isinstance(model, list):
        marked = [mark_secret_like(item, other) for item, other in zip(new, model, strict=False)]
        return marked + new[len(model) :]
    return new


def format_path(path: Path) -> str:
    """Return a property path in Pulumi's notation: ``spec.ports[0].name``, ``data["a.b"]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step and not set(step) & set('."[]'):
            text += f".{step}" if text else step
        else:
            quoted = step.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{quoted}"]'
    return text


def changed_paths(old: Value, new: Value) -> tuple[Path, ...]:
    """Return the deepest paths at which two values differ.

    An unknown differs from everything; secret markers are ignored.
    """
    return tuple(_changed(old, new, ()))


def _changed(old: Value, new: Value, path: Path) -> Iterator[Path]:
    if isinstance(old, Secret) or isinstance(new, Secret):
        yield from _changed(_opened(old), _opened(new), path)
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from _changed(old[key], new[key], (*path, key))
            else:
                yield (*path, key)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index < len(old) and index < len(new):
                yield from _changed(old[index], new[index], (*path, index))
            else:
                yield (*path, index)
    elif isinstance(old, Unknown) or isinstance(new, Unknown) or not _same(old, new):
        yield path


def _opened(value: Value) -> Value:
    return value.value if isinstance(value, Secret) else value


def _same(old: Value, new: Value) -> bool:
    # In Python True == 1, but in a manifest they are different values.
    return isinstance(old, bool) == isinstance(new, bool) and old == new
