"""Read a stack file, and decrypt its secrets. Refuse contents that this engine does not support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine.errors import EngineError
from stackfile import (
    Ciphertext,
    ConfigValue,
    StackFileError,
    as_text,
    has_secret,
    parse_config,
    read,
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
        return any(has_secret(value) for value in self.config.values())

    def decrypted(self, crypter: Decrypter | None) -> tuple[dict[str, str], list[str]]:
        """Return the values in the format that programs read, and the keys with secret values.

        Text stays as it is; other values become JSON. Raises EngineError with the key if a value
        cannot be decrypted, or if the value is encrypted and ``crypter`` is None.
        """
        texts = {key: self._text(key, value, crypter) for key, value in self.config.items()}
        secret = [key for key, value in self.config.items() if has_secret(value)]
        return texts, sorted(secret)

    def _text(self, key: str, value: ConfigValue, crypter: Decrypter | None) -> str:
        try:
            opened = _opened(value, crypter)
        except EngineError as error:
            raise EngineError(f"{self.path}: {key}: {error}") from error
        return as_text(opened)


def read_stack_file(path: Path) -> StackFile:
    """Read a stack file. If the file is missing, the stack has no config.

    Raises EngineError with the file and the key.
    """
    try:
        return _supported(path, read(path))
    except FileNotFoundError:
        return StackFile(path)
    except StackFileError as error:
        raise EngineError(f"{path}: {error}") from error


def _supported(path: Path, document: Mapping[str, Any]) -> StackFile:
    if document.get("environment"):
        raise EngineError(
            f"{path}: environment: this engine does not support environments of Pulumi Cloud; move"
            " their values to the key `config` of this file"
        )
    provider = document.get("secretsprovider")
    if provider not in (None, "", "passphrase") or document.get("encryptedkey"):
        raise EngineError(
            f"{path}: secretsprovider: {provider!r}: this engine supports only passphrase; run"
            " `pulumi stack change-secrets-provider passphrase`"
        )
    return StackFile(
        path,
        parse_config(document.get("config")),
        document.get("encryptionsalt") or None,
        provider or None,
    )


def _opened(value: ConfigValue, crypter: Decrypter | None) -> ConfigValue:
    if isinstance(value, Ciphertext):
        if crypter is None:
            raise EngineError(
                "is encrypted, but the stack file has no key `encryptionsalt`, which is necessary"
                " to decrypt it; set the value again with `pulumi config set --secret`"
            )
        return crypter.decrypt(value.text)
    if isinstance(value, dict):
        return {name: _opened(item, crypter) for name, item in value.items()}
    if isinstance(value, list):
        return [_opened(item, crypter) for item in value]
    return value
