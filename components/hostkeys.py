"""Keys of SSH that follow from a random text."""

import hashlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def host_key(seed: str) -> str:
    """The Ed25519 private key that follows from a random text, as PEM.

    PKCS #8 and not OpenSSH's own format, which puts random numbers in: the same seed must give
    the same text, or every deploy would see a change.
    """
    return (
        _private_key(seed)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def public_host_key(seed: str) -> str:
    """The public half, as it stands in a known_hosts file after the host's name."""
    return (
        _private_key(seed)
        .public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        .decode()
    )


def _private_key(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(seed.encode()).digest())
