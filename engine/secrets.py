"""Encrypt secrets in Pulumi's passphrase format, which Pulumi's engine can read too.

The key is PBKDF2-HMAC-SHA256 of the passphrase and the stack's salt (1,000,000 rounds, 32 bytes).
AES-256-GCM encrypts a value with this key, as ``v1:<base64 nonce>:<base64 ciphertext and tag>``.
The stack's salt string is ``v1:<base64 salt>:`` and the encrypted word "pulumi". If this word
cannot be decrypted, the passphrase is wrong. Source: the documentation of Pulumi's state format.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine.errors import EngineError, WrongPassphrase
from engine.values import SECRET, SIGNATURE, Secret, Unknown, Value, as_secret, plain

_ROUNDS: Final = 1_000_000
_KEY_BYTES: Final = 32
_SALT_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_PROOF: Final = "pulumi"
_VERSION: Final = "v1"
_PASSPHRASE: Final = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - the variable's name
_PASSPHRASE_FILE: Final = "PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105 - the variable's name


class PassphraseCrypter:
    """Encrypts and decrypts a stack's secrets. It is thread-safe.

    Deriving the key takes a few tenths of a second, but does not hold Python's global lock. If one
    thread creates the crypter, other threads can therefore continue.
    """

    def __init__(self, key: bytes, salt: bytes, proof: str | None = None) -> None:
        self._cipher = AESGCM(key)
        self._lock = threading.Lock()
        self._ciphertexts: dict[str, str] = {}
        self.state: Final = ":".join((_VERSION, _encode(salt), proof or self._seal(_PROOF)))

    @classmethod
    def new(cls, passphrase: str) -> PassphraseCrypter:
        """Return a crypter with a new salt, for a stack that has no secrets yet."""
        salt = os.urandom(_SALT_BYTES)
        return cls(_derive(passphrase, salt), salt)

    @classmethod
    def from_state(cls, passphrase: str, state: str) -> PassphraseCrypter:
        """Return the crypter of a stack, from its salt string.

        Raises WrongPassphrase, or EngineError if the salt string is invalid.
        """
        version, _, rest = state.partition(":")
        encoded, _, proof = rest.partition(":")
        if version != _VERSION or not proof:
            raise EngineError(
                "encryptionsalt: expected v1:<salt>:v1:<nonce>:<text>; restore its value from a"
                " backup of the stack file or of the state"
            )
        salt = _decode(encoded, "encryptionsalt")
        crypter = cls(_derive(passphrase, salt), salt, proof)
        try:
            correct = crypter._open(proof) == _PROOF
        except EngineError:
            correct = False
        if not correct:
            raise WrongPassphrase(
                f"incorrect passphrase: it does not decrypt the secrets of this stack; set"
                f" {_PASSPHRASE} or {_PASSPHRASE_FILE} to the passphrase with which the stack was"
                " created"
            )
        return crypter

    def encrypt(self, plaintext: str) -> str:
        """Encrypt a text. If this text was decrypted before, return the same ciphertext again."""
        with self._lock:
            ciphertext = self._ciphertexts.get(plaintext)
            if ciphertext is None:
                ciphertext = self._ciphertexts[plaintext] = self._seal(plaintext)
            return ciphertext

    def decrypt(self, ciphertext: str) -> str:
        """Decrypt a text. Raises EngineError if the text is damaged or from another stack."""
        plaintext = self._open(ciphertext)
        with self._lock:
            self._ciphertexts.setdefault(plaintext, ciphertext)
        return plaintext

    def _seal(self, plaintext: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, plaintext.encode(), None)
        return ":".join((_VERSION, _encode(nonce), _encode(sealed)))

    def _open(self, ciphertext: str) -> str:
        match ciphertext.split(":"):
            case [version, nonce, sealed] if version == _VERSION:
                try:
                    opened = self._cipher.decrypt(
                        _decode(nonce, "secret"), _decode(sealed, "secret"), None
                    )
                except (InvalidTag, ValueError) as error:
                    raise EngineError(
                        "a secret cannot be decrypted, because it is damaged or was encrypted"
                        " for another stack; if the secret is in the stack file, set it again;"
                        " if it is in the state, restore the state from its .bak file"
                    ) from error
                return opened.decode()
        raise EngineError(
            "a secret cannot be decrypted: expected v1:<nonce>:<ciphertext>; if the secret is"
            " in the stack file, set it again; if it is in the state, restore the state from"
            " its .bak file"
        )


def passphrase_from_environment() -> str:
    """Return the user's passphrase. Raises EngineError if the passphrase is missing."""
    passphrase = os.environ.get(_PASSPHRASE)
    if passphrase is not None:
        return passphrase
    file = os.environ.get(_PASSPHRASE_FILE)
    if not file:
        raise EngineError(
            f"the stack has secrets, but no passphrase is set; set {_PASSPHRASE} to the passphrase,"
            f" or {_PASSPHRASE_FILE} to a file with it"
        )
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise EngineError(
            f"{_PASSPHRASE_FILE}: cannot read {file}: {error.strerror}; set this variable to a"
            " readable file with the passphrase"
        ) from error


def seal(value: Value, crypter: PassphraseCrypter) -> Any:
    """Return a value as JSON for the state, with every secret in it encrypted.

    Raises ValueError on an unknown value, which the state cannot contain.
    """
    if isinstance(value, Secret):
        # Sort keys: a program's maps have no fixed order, and equal secrets must stay equal.
        opened = seal(plain(value), crypter)
        text = json.dumps(opened, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        return {SIGNATURE: SECRET, "ciphertext": crypter.encrypt(text)}
    if isinstance(value, Unknown):
        raise ValueError("an unknown value cannot be stored")
    if isinstance(value, dict):
        return {key: seal(item, crypter) for key, item in value.items()}
    if isinstance(value, list):
        return [seal(item, crypter) for item in value]
    return value


def unseal(stored: Any, crypter: PassphraseCrypter) -> Value:
    """Return the value that JSON of the state contains, with ``Secret`` for encrypted parts.

    Raises EngineError if a secret cannot be read.
    """
    if isinstance(stored, list):
        return [unseal(item, crypter) for item in stored]
    if not isinstance(stored, dict):
        value: Value = stored
        return value
    if stored.get(SIGNATURE) != SECRET:
        return {key: unseal(item, crypter) for key, item in stored.items()}
    # A state that was exported with `--show-secrets` contains its secrets as plain text.
    sealed = stored.get("ciphertext")
    text = stored["plaintext"] if sealed is None else crypter.decrypt(sealed)
    return as_secret(unseal(json.loads(text), crypter))


def _derive(passphrase: str, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, _ROUNDS, _KEY_BYTES)


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise EngineError(
            f"{name}: is damaged (expected base64); restore the stack file or the state from a"
            " backup"
        ) from error
