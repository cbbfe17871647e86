"""Parse a stack's file, ``Pulumi.<stack>.yaml``, as the `pulumi` command does."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import yaml

from engine.errors import EngineError

_FIELDS: Final = frozenset(
    {"config", "encryptionsalt", "secretsprovider", "encryptedkey", "environment"}
)


@dataclass(frozen=True)
class Ciphertext:
    """An encrypted value of the file (``secure: …``)."""

    text: str


ConfigValue: TypeAlias = (
    "bool | int | float | str | Ciphertext | list[ConfigValue] | dict[str, ConfigValue] | None"
)


class Decrypter(Protocol):
    """Decrypts the encrypted values of a stack file."""

    def decrypt(self, ciphertext: str) -> str:
        """Return the plain text. Raises EngineError."""
        ...


@dataclass(frozen=True)
class StackFile:
    """Contents of a stack file. Config keys are ``<namespace>:<name>``."""

    path: Path
    config: dict[str, ConfigValue] = field(default_factory=dict)
    encryption_salt: str | None = None
    secrets_provider: str | None = None

    @property
    def has_secrets(self) -> bool:
        return any(_holds_ciphertext(value) for value in self.config.values())

    def decrypted(self, crypter: Decrypter | None) -> tuple[dict[str, str], list[str]]:
        """Return the values in the format that programs read, and the keys that have a secret.

        Text stays as it is; other values become JSON. Raises EngineError with the key if a value
        cannot be decrypted, or if it is encrypted and ``crypter`` is None.
        """
        texts = {key: self._text(key, value, crypter) for key, value in self.config.items()}
        secret = [key for key, value in self.config.items() if _holds_ciphertext(value)]
        return texts, sorted(secret)

    def _text(self, key: str, value: ConfigValue, crypter: Decrypter | None) -> str:
        try:
            opened = _opened(value, crypter)
        except EngineError as error:
            raise EngineError(f"{self.path}: {key}: {error}") from error
        if opened is None:
            return ""
        if isinstance(opened, str):
            return opened
        if isinstance(opened, float):
            return repr(opened).replace("e-0", "e-")  # Python writes 1e-05, others 1e-5
        return json.dumps(opened, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def read_stack_file(path: Path) -> StackFile:
    """Read a stack file; a missing file means a stack without config.

    Raises EngineError with the file and the key.
    """
    try:
        document = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a safe loader
    except FileNotFoundError:
        return StackFile(path)
    except OSError as error:
        raise EngineError(
            f"{path}: cannot be read: {error.strerror}; check its permissions"
        ) from error
    except yaml.YAMLError as error:
        raise EngineError(f"{path}: not valid YAML: {_one_line(error)}; fix it") from error
    return _parsed(path, {} if document is None else document)


def _parsed(path: Path, document: Any) -> StackFile:
    if not isinstance(document, dict):
        raise EngineError(f"{path}: expected a mapping with the key `config`")
    unknown = sorted(str(key) for key in document if key not in _FIELDS)
    if unknown:
        raise EngineError(f"{path}: {unknown[0]}: unknown key; move it under `config`")
    if document.get("environment"):
        raise EngineError(
            f"{path}: environment: this engine does not support environments of Pulumi Cloud; put"
            " the values in `config`"
        )
    provider = document.get("secretsprovider")
    if provider not in (None, "", "passphrase") or document.get("encryptedkey"):
        raise EngineError(
            f"{path}: secretsprovider: {provider!r}: this engine supports only passphrase; run"
            " `pulumi stack change-secrets-provider passphrase`"
        )
    return StackFile(
        path,
        parse_config(path, document.get("config")),
        document.get("encryptionsalt") or None,
        provider or None,
    )


def parse_config(path: Path, config: Any, namespace: str | None = None) -> dict[str, ConfigValue]:
    """Parse the ``config`` of a stack or project file. Raises EngineError with file and key.

    A key without a namespace gets ``namespace``, the project. If ``namespace`` is None, such a key
    is an error.
    """
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise EngineError(f"{path}: config: expected a mapping of <namespace>:<name> to values")
    return {
        _key(path, key, namespace): _value(path, str(key), value) for key, value in config.items()
    }


def _key(path: Path, key: Any, namespace: str | None) -> str:
    parts = str(key).split(":")
    match parts:
        case [name] if namespace:
            return f"{namespace}:{name}"
        case [_, _]:
            return ":".join(parts)
        case [package, "config", name]:
            return f"{package}:{name}"  # an old syntax of keys
    raise EngineError(f"{path}: config: {key}: expected a key of the form <namespace>:<name>")


def _value(path: Path, key: str, value: Any) -> ConfigValue:
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("secure"), str):
            return Ciphertext(value["secure"])
        return {str(name): _value(path, f"{key}.{name}", item) for name, item in value.items()}
    if isinstance(value, list):
        return [_value(path, f"{key}[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # programs read JSON, which does not distinguish 1.0 from 1
    if isinstance(value, float) and not math.isfinite(value):
        raise EngineError(f"{path}: {key}: {value}: expected a finite number")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise EngineError(
        f"{path}: {key}: unsupported type {type(value).__name__}; expected text, a number, a"
        " boolean, a list or a mapping; put the value in quotes"
    )


def _opened(value: ConfigValue, crypter: Decrypter | None) -> Any:
    if isinstance(value, Ciphertext):
        if crypter is None:
            raise EngineError(
                "the value is encrypted, but the stack has no encryptionsalt; set the value again"
                " with `pulumi config set --secret`"
            )
        return crypter.decrypt(value.text)
    if isinstance(value, dict):
        return {name: _opened(item, crypter) for name, item in value.items()}
    if isinstance(value, list):
        return [_opened(item, crypter) for item in value]
    return value


def _holds_ciphertext(value: ConfigValue) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_ciphertext(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_ciphertext(item) for item in value)
    return isinstance(value, Ciphertext)


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + str(getattr(error, "problem", None) or error).replace("\n", " ")


class _Loader(yaml.SafeLoader):
    """YAML as Pulumi reads it: only true and false are booleans; ``yes`` and ``1:30`` are text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


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
