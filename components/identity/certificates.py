"""Derive TLS certificates from a random seed, so that each deploy gets the same certificate."""

import hashlib
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from components.identity.hostkeys import private_key

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_END = datetime(2126, 1, 1, tzinfo=UTC)
"""A certificate ends with its seed. Clients trust only this one certificate."""


def certificate(seed: str, host: str) -> str:
    """Return a self-signed certificate for a DNS name, as PEM.

    Its private key is `host_key(seed)`. Signatures of Ed25519 contain no random numbers, so the
    same seed always gives the same text.
    """
    key = private_key(seed)
    # A common name has at most 64 characters (RFC 5280), so only the extension has the DNS name.
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "slurmstack")])
    serial = int.from_bytes(hashlib.sha256(f"{host} {seed}".encode()).digest()[:16])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
