"""Pulumi's schema of the package, derived from the settings and from the component."""

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final, get_args, get_origin

from components.conventions import PROJECT
from components.settings import ExistingCluster, Settings
from package.cluster import TYPE, SlurmCluster, output_types

Spec = dict[str, Any]
_ANY: Final = {"$ref": "pulumi.json#/Any"}
_SECRET: Final = ("kubeconfig", "secrets")
_SCALARS: Final[Mapping[type, str]] = {str: "string", int: "integer", bool: "boolean"}


def schema(version: str) -> Spec:
    """Return the schema of the package's only resource, the component `SlurmCluster`."""
    settings = Settings.model_json_schema()
    cluster = ExistingCluster.model_json_schema()["properties"]
    inputs = {
        **{name: cluster[name] for name in ("kubeconfig", "context", "domain")},
        **{name: each for name, each in settings["properties"].items() if name != "cluster"},
    }
    required = [name for name in settings["required"] if name != "cluster"]
    types = _reached(inputs, settings["$defs"])
    outputs = {name: _output(kind) for name, kind in output_types().items()}
    return {
        "name": PROJECT,
        "version": version,
        "displayName": "Slurm on Kubernetes",
        "description": "A Slurm cluster that users cannot distinguish from bare metal",
        "license": "Apache-2.0",
        "keywords": ["kind/component", "category/infrastructure", "slurm", "hpc"],
        "resources": {
            TYPE: {
                "isComponent": True,
                "description": SlurmCluster.__doc__,
                "inputProperties": {
                    name: {**_property(each), **({"secret": True} if name in _SECRET else {})}
                    for name, each in inputs.items()
                },
                "requiredInputs": required,
                "properties": outputs,
                "required": [
                    name for name, kind in output_types().items() if NoneType not in get_args(kind)
                ],
            }
        },
        "types": {f"{PROJECT}:index:{name}": _object(each) for name, each in types.items()},
        "language": {
            "nodejs": {"respectSchemaVersion": True},
            "python": {"respectSchemaVersion": True, "pyproject": {"enabled": True}},
        },
    }


def _reached(inputs: Spec, definitions: Spec) -> Spec:
    """Return the definitions of objects to which inputs refer, directly or indirectly."""
    found: Spec = {}
    names = sorted(_references(inputs))
    while names:
        if (name := names.pop()) not in found and "properties" in definitions[name]:
            found[name] = definitions[name]
            names += sorted(_references(found[name]))
    return dict(sorted(found.items()))


def _references(definition: Any) -> set[str]:
    if isinstance(definition, list):
        return {name for each in definition for name in _references(each)}
    if not isinstance(definition, dict):
        return set()
    if isinstance(reference := definition.get("$ref"), str):
        return {reference.rpartition("/")[2]}
    return _references(list(definition.values()))


def _object(definition: Spec) -> Spec:
    return {
        "type": "object",
        **_described(definition),
        "properties": {name: _property(each) for name, each in definition["properties"].items()},
        "required": definition.get("required", []),
    }


def _property(definition: Spec) -> Spec:
    return {**_described(definition), **_type(definition)}


def _described(definition: Spec) -> Spec:
    return {"description": text} if (text := definition.get("description")) else {}


def _type(definition: Spec) -> Spec:
    """Convert a type of JSON Schema to a type of Pulumi's schema."""
    match definition:
        case {"$ref": "#/$defs/JsonValue"}:
            return _ANY
        case {"$ref": reference}:
            return {"$ref": f"#/types/{PROJECT}:index:{reference.rpartition('/')[2]}"}
        case {"anyOf": choices}:
            return _one_of(choices)
        case {"properties": {"secure": _}}:  # an encrypted value of a stack file
            return {"type": "string"}
        case {"type": "array", **rest}:
            return {"type": "array", "items": _type(rest["items"])}
        case {"type": "object", "additionalProperties": dict(values)}:
            return {"type": "object", "additionalProperties": _type(values)}
        case {"type": "object"}:
            return {"type": "object", "additionalProperties": _ANY}
        case {"type": str(scalar)}:
            return {"type": scalar}
    return _ANY


def _one_of(choices: list[Spec]) -> Spec:
    types = [_type(each) for each in choices if each.get("type") != "null"]
    different = [each for index, each in enumerate(types) if each not in types[:index]]
    return different[0] if len(different) == 1 else {"oneOf": different}


def _output(kind: Any) -> Spec:
    if get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": _output(get_args(kind)[1])}
    (known, *_) = (each for each in (get_args(kind) or (kind,)) if each is not NoneType)
    return {"type": _SCALARS[known]}
