"""Check the inputs that a program registers against the types in the SDKs of the providers."""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

from pulumi import _types as types

from tests.support.graph import SECRET_SIGNATURE, Registration

_SIGNATURE = "4dabf18193072939515e22adb298388d"
"""Key in a dictionary that represents a special value of Pulumi: a secret or a resource."""
_LISTED = re.compile(r"^\s*- `([A-Z][A-Z_0-9]{2,})`", re.MULTILINE)
_VALID = re.compile(r"[Vv]alid values?(?: are)?:? ((?:`?[A-Z][A-Z_0-9]{2,}`?(?:, | and | or )?)+)")


def package(type_: str) -> str:
    """Return the Python package of a type token's provider."""
    return f"pulumi_{type_.partition(':')[0]}"


def problems(resource: Registration) -> Iterator[str]:
    """Yield each input whose name, type or value contradicts the SDK, and each missing input."""
    name = resource.type.rpartition(":")[2]
    arguments = getattr(importlib.import_module(_home(resource.type)), f"{name}Args")
    for problem in _of_object(arguments, resource.inputs, ""):
        yield f"{resource.type} {resource.name}: {problem}"


def _home(type_: str) -> str:
    """Return the module in which an SDK defines a type's arguments."""
    provider, module, _ = type_.split(":")
    folder, _, version = module.partition("/")
    if provider == "kubernetes":
        # Use only the first part of the group's name: the SDK's module for
        # rbac.authorization.k8s.io/v1 is rbac.v1.
        return f"{package(type_)}.{folder.partition('.')[0]}.{version}"
    return package(type_) if folder == "index" else f"{package(type_)}.{folder}"


def _of_object(arguments: type, value: Mapping[str, Any], path: str) -> Iterator[str]:
    known = types.input_type_types(arguments)
    names = types.input_type_py_to_pulumi_names(arguments)
    parameters = inspect.signature(arguments.__init__).parameters  # type: ignore[misc]
    for name, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty and name in names
        if required and names[name] not in value:
            yield f"{path}{names[name]}: is required"
    documented = {names[name]: getattr(arguments, name).__doc__ for name in names}
    for key, given in value.items():
        if key not in known:
            yield f"{path}{key}: is not known"
            continue
        yield from _of(known[key], given, f"{path}{key}")
        allowed = _values(documented[key] or "")
        if isinstance(given, str) and allowed and given not in allowed:
            yield f"{path}{key}: {given}: expected one of {sorted(allowed)}"


def _values(doc: str) -> set[str]:
    """Return the valid values that a property's documentation lists, if it lists any."""
    sentence = _VALID.search(doc)
    return {
        *_LISTED.findall(doc),
        *(re.findall(r"[A-Z][A-Z_0-9]{2,}", sentence[1]) if sentence else ()),
    }


def _of(wanted: Any, value: Any, path: str) -> Iterator[str]:
    wanted = _plain(wanted)
    if isinstance(value, Mapping) and _SIGNATURE in value:
        if value[_SIGNATURE] == SECRET_SIGNATURE:
            yield from _of(wanted, value["value"], path)
        return
    if types.is_input_type(wanted):
        if isinstance(value, Mapping):
            yield from _of_object(wanted, value, f"{path}.")
        else:
            yield f"{path}: {value!r}: expected an object"
        return
    origin = get_origin(wanted)
    if origin in (Sequence, list) and isinstance(value, list):
        for index, one in enumerate(value):
            yield from _of(get_args(wanted)[0], one, f"{path}[{index}]")
    elif origin in (Mapping, dict) and isinstance(value, Mapping):
        for key, one in value.items():
            yield from _of(get_args(wanted)[1], one, f"{path}.{key}")
    elif not _fits(wanted, value):
        yield f"{path}: {value!r}: expected {wanted}"


def _fits(wanted: Any, value: Any) -> bool:
    """Return whether a scalar matches a type. In requests, every number is a float."""
    if wanted is Any or (get_origin(wanted) is not None and Any in get_args(wanted)):
        return True
    if inspect.isclass(wanted) and issubclass(wanted, Enum):
        return value in {member.value for member in wanted}
    constant = getattr(wanted, "__forward_arg__", wanted)
    if isinstance(constant, str):
        # The SDK has a constant instead of a type for some values, such as the kind of a Kubernetes
        # object.
        return bool(value == constant)
    choices = [one for one in get_args(wanted) if one in (bool, float, int, str)]
    if choices:
        return any(_fits(one, value) for one in choices)
    if isinstance(value, bool) or wanted is bool:
        return isinstance(value, bool) and wanted is bool
    if wanted is int:
        return isinstance(value, int | float) and value == int(value)
    if wanted is float:
        return isinstance(value, int | float)
    # All other scalars are texts, such as ids or policies in JSON.
    return isinstance(value, str) and wanted is str


def _plain(wanted: Any) -> Any:
    """Strip Pulumi's Awaitable and Output from a type."""
    while True:
        inner = types.unwrap_type(wanted)
        if inner == wanted:
            break
        wanted = inner
    choices = [one for one in get_args(wanted) if one is not type(None)]
    if get_origin(wanted) in (Sequence, Mapping, list, dict) or not choices:
        return wanted
    plain = [one for one in choices if "Awaitable" not in str(one) and "Output" not in str(one)]
    return plain[0] if len(plain) == 1 else wanted
