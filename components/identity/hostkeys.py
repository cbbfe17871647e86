"""Derive SSH keys from a random seed, so that each deploy gets the same keys."""

import hashlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def host_key(seed: str) -> str:
    """Derive an Ed25519 private key from a seed, as PEM.

    The format is PKCS #8, in which the same seed always gives the same text. OpenSSH's own format
    contains random numbers, so every deploy would change the key.
    """
    return (
        private_key(seed)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def public_host_key(seed: str) -> str:
    """Return the public key in the format of known_hosts, without the host's name."""
    return (
        private_key(seed)
        .public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        .decode()
    )


def private_key(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(seed.encode()).digest())
