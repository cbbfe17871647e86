"""Reader of a stack's file, `Pulumi.<stack>.yaml`, by the rules of the Pulumi command.

The engine, the Pulumi program and its tools all use this reader, so they agree on each value.
Unlike the Pulumi command, the reader refuses duplicate keys, because one of the values would be
lost. It also refuses numbers with a leading zero, because YAML reads them as octal.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

_FIELDS: Final = frozenset(
    {"config", "encryptionsalt", "secretsprovider", "encryptedkey", "environment"}
)


class StackFileError(Exception):
    """An invalid stack file. The text is one line; it names the key, but not the file."""


@dataclass(frozen=True)
class Ciphertext:
    """An encrypted value of the file (`secure: …`)."""

    text: str


ConfigValue: TypeAlias = (
    "bool | int | float | str | Ciphertext | list[ConfigValue] | dict[str, ConfigValue] | None"
)


def read(path: Path) -> dict[str, Any]:
    """Return the top level of a stack file. Raises `FileNotFoundError` and `StackFileError`."""
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StackFileError(
            f"cannot read the file: {error.strerror}; check that the file exists and that you may "
            "read it"
        ) from None
    except UnicodeDecodeError:
        raise StackFileError("expected text in UTF-8; save the file as UTF-8") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise StackFileError(
            "expected a mapping at the top level of the file; put the settings under the key "
            "'config'"
        )
    unknown = sorted(str(key) for key in document if key not in _FIELDS)
    if unknown:
        close = difflib.get_close_matches(unknown[0].lower(), _FIELDS, n=1, cutoff=0.8)
        remedy = f"did you mean '{close[0]}'?" if close else "move it under `config`"
        raise StackFileError(f"{unknown[0]}: unknown key; {remedy}")
    return document


def parse(text: str) -> Any:
    """Parse YAML as the Pulumi command does. Raises `StackFileError`."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  # a safe loader
    except yaml.MarkedYAMLError as error:
        problem = str(error.problem)
        is_earlier = problem in _EARLIER and error.context_mark
        mark = error.context_mark if is_earlier else error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise StackFileError(f"invalid YAML: {place}{_explained(problem)}") from None
    except yaml.YAMLError as error:
        raise StackFileError(f"invalid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise StackFileError(
            "invalid YAML: the values are nested too deeply; write them with fewer levels"
        ) from None
    except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
        # PyYAML's own constructors raise these errors, for example for '!!bool maybe'.
        raise StackFileError(
            f"invalid YAML: a value does not fit its tag, such as !!bool ({error}); remove the tag"
            " and put the value in quotes"
        ) from None


_EARLIER: Final = ("could not find expected ':'", "found unexpected end of stream")
"""Problems of PyYAML that begin in an earlier line, with the key or the quote."""
_PROBLEMS: Final = (
    (
        r"(could not find expected ':')",
        "this line has no ': ' after its key; write it as 'key: value'",
    ),
    (
        r"found unexpected end of stream",
        ("the text that begins here has no closing quote; add the quote"),
    ),
    (
        r"expected <block end>, but found .*",
        "the indentation fits no line above; indent this line like the other lines of its block",
    ),
    (
        r"mapping values are not allowed here",
        (
            "this ':' is not allowed here; put text that contains ': ' in quotes, and indent a key"
            " like the other keys of its block"
        ),
    ),
    (
        r"sequence entries are not allowed here",
        "a list must begin on a line of its own; move the '-' to a new line",
    ),
    (r"found character '\\t' .*", "YAML allows no tab here; indent this line with spaces"),
    (r"found character ('.') .*", r"text cannot begin with \1; put it in quotes"),
    (r"(expected ',' or '\]'), but got .*", r"\1; close the list, or separate its items"),
    (r"(expected ',' or '\}'), but got .*", r"\1; close the mapping, or separate its keys"),
)
"""Problems of PyYAML as patterns, each with its explanation and remedy for users."""


def _explained(problem: str) -> str:
    for pattern, explanation in _PROBLEMS:
        if match := re.fullmatch(pattern, problem):
            return match.expand(explanation)
    return problem


def parse_config(config: Any, namespace: str | None = None) -> dict[str, ConfigValue]:
    """Parse the `config` of a stack or project file. Raises `StackFileError`.

    A key without a namespace gets `namespace`, the name of the project. If `namespace` is None,
    such a key is an error.
    """
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise StackFileError("config: expected a mapping of <namespace>:<name> to values")
    parsed: dict[str, ConfigValue] = {}
    for written, value in config.items():
        if isinstance(value, dict) and ":" not in str(written) and not namespace:
            raise StackFileError(
                f"config: {written}: expected a key of the form <namespace>:<name>; put the name "
                f"of the project before it, such as slurmstack:{written}"
            )
        key = _key(written, namespace)
        if key in parsed:
            raise StackFileError(
                f"config: {written}: the file has the key '{key}' twice, in two spellings; keep "
                "only one of them"
            )
        try:
            parsed[key] = _value(str(written), value)
        except RecursionError:
            raise StackFileError(
                f"{written}: is nested too deeply or contains itself; write it with fewer levels"
            ) from None
    return parsed


def as_text(value: ConfigValue) -> str:
    """Return a value as programs receive it: text as it is, other values as JSON.

    An encrypted value is a mapping, as in the file.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value).replace("e-0", "e-")  # 1e-5 as in other JSON writers
    return json.dumps(
        value,
        default=lambda encrypted: {"secure": encrypted.text},
        separators=(",", ":"),
        sort_keys=True,
        ensure_ascii=False,
    )


def has_secret(value: ConfigValue) -> bool:
    """Return whether a value, or a part of it, is encrypted."""
    if isinstance(value, Mapping):
        return any(has_secret(item) for item in value.values())
    if isinstance(value, list):
        return any(has_secret(item) for item in value)
    return isinstance(value, Ciphertext)


def _key(key: Any, namespace: str | None) -> str:
    parts = str(key).split(":")
    match parts:
        case [name] if namespace:
            return f"{namespace}:{name}"
        case [_, _]:
            return ":".join(parts)
        case [package, "config", name]:
            return f"{package}:{name}"  # an old syntax of keys
    raise StackFileError(
        f"config: {key}: expected a key of the form <namespace>:<name> with exactly one "
        "colon, such as slurmstack:cluster_name"
    )


def _value(key: str, value: Any) -> ConfigValue:
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("secure"), str):
            return Ciphertext(value["secure"])
        return {str(name): _value(f"{key}.{name}", item) for name, item in value.items()}
    if isinstance(value, list):
        return [_value(f"{key}[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # programs read JSON, which does not distinguish 1.0 from 1
    if isinstance(value, float) and not math.isfinite(value):
        raise StackFileError(f"{key}: {value}: expected a finite number")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise StackFileError(
        f"{key}: unsupported type {type(value).__name__}; expected text, a number, a"
        " boolean, a list or a mapping; put the value in quotes"
    )


class _Loader(yaml.SafeLoader):
    """YAML as Pulumi reads it: only true and false are booleans; `yes` and `1:30` are text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"duplicate key '{key.value}'; keep one",
                        problem_mark=key.start_mark,
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if re.fullmatch(r"[-+]?0[0-7_]+", node.value):
            raise yaml.constructor.ConstructorError(
                problem=f"{node.value} begins with 0, so YAML reads it as an octal number; "
                "remove the leading zero, or put the value in quotes if it is text",
                problem_mark=node.start_mark,
            )
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


_SCALARS: Final = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("int", r"[-+]?(0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
)
for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^$"), [""])
