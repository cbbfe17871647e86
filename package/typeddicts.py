"""Write the Python types of the component's arguments: `python -m package.typeddicts`."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from package.cluster import TYPE
from package.schema import schema

ARGUMENTS: Final = Path(__file__).with_name("arguments.py")
"""The file to write. A test compares its contents with the result of `text`."""
_HEAD: Final = '''\
"""Types of the arguments of `SlurmCluster`, which `make schema` writes from the settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from pulumi import Input
'''
_SCALARS: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
}


def text() -> str:
    """Return the module with a class for each type of the schema."""
    found = schema("0")
    resource = found["resources"][TYPE]
    arguments = {
        "description": "Arguments of `SlurmCluster`.",
        "properties": resource["inputProperties"],
        "required": resource["requiredInputs"],
    }
    types = {name.rpartition(":")[2]: each for name, each in found["types"].items()}
    classes = {**types, "SlurmClusterArgs": arguments}
    return "\n\n".join([_HEAD, *(_class(name, each) for name, each in classes.items())])


def _class(name: str, definition: Mapping[str, Any]) -> str:
    required = definition["required"]
    fields = [
        _documented(f"{key}: {_field(each, key in required)}", each)
        for key, each in definition["properties"].items()
    ]
    described = [f'"""{definition["description"]}"""\n'] if "description" in definition else []
    body = "\n".join([*described, *fields]) or "pass"
    return f"class {name}(TypedDict):\n{indent(body, '    ')}\n"


def _documented(line: str, definition: Mapping[str, Any]) -> str:
    described = definition.get("description")
    return f'{line}\n"""{described}"""' if described else line


def _field(definition: Mapping[str, Any], required: bool) -> str:
    given = f"Input[{_type(definition)}]"
    return given if required else f"NotRequired[{given}]"


def _type(definition: Mapping[str, Any]) -> str:
    match definition:
        case {"$ref": str(reference)} if reference.startswith("#/types/"):
            return f'"{reference.rpartition(":")[2]}"'
        case {"oneOf": choices}:
            return " | ".join(_type(each) for each in choices)
        case {"type": "array", "items": items}:
            return f"Sequence[Input[{_type(items)}]]"
        case {"type": "object", "additionalProperties": values}:
            return f"Mapping[str, Input[{_type(values)}]]"
        case {"type": str(scalar)}:
            return _SCALARS[scalar]
    return "Any"


if __name__ == "__main__":
    ARGUMENTS.write_text(text())
