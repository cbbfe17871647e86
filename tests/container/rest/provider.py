"""A minimal identity provider with a key pair, a published key set and signed tokens."""

import json
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

KEY_ID = "2026"
USER_CLAIM = "preferred_username"


def _key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(frozen=True)
class Provider:
    """An identity provider. It signs tokens with RS256 (RFC 7518).

    Slurm accepts no other algorithm for tokens that Slurm itself has not signed.
    """

    key: RSAPrivateKey = field(default_factory=_key)

    def jwks(self) -> str:
        """Return the public keys as a JSON Web Key Set (RFC 7517)."""
        public = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID}
        return json.dumps({"keys": [key | {"n": _number(public.n), "e": _number(public.e)}]})

    def token(self, user: str, lifetime: int = 300) -> str:
        """Return a token for `user`, valid for `lifetime` seconds from now."""
        now = int(time.time())
        header = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        claims = {USER_CLAIM: user, "iss": "https://idp.invalid", "exp": now + lifetime}
        signed = f"{_part(header)}.{_part(claims)}"
        return f"{signed}.{_encode(self.key.sign(signed.encode(), PKCS1v15(), SHA256()))}"


def _part(content: dict[str, Any]) -> str:
    return _encode(json.dumps(content).encode())


def _number(number: int) -> str:
    return _encode(number.to_bytes((number.bit_length() + 7) // 8))


def _encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
