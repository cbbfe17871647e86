"""Make JSON web tokens, signed with slurmctld's key, which identify a user to slurmrestd.

slurmctld requires HS256 and the claims `sun` (the user's name), `iat` and `exp` (Unix times). See
https://slurm.schedmd.com/jwt.html.
"""

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

DEFAULT_KEY = Path("/etc/slurmstack/jwt/jwt_hs256.key")
"""Path of the key in pods that may make tokens."""
LIFETIME = 300
"""Lifetime of an agent's own token in seconds."""
RENEW_BEFORE = 60
"""A token is renewed this many seconds before it expires: clocks differ, and requests take time."""

Token = Callable[[], str]
"""Function that returns a valid token."""


def make_token(key: bytes, user: str, lifetime: int, now: float | None = None) -> str:
    """Return a token for `user`. It is valid for `lifetime` seconds from `now` (Unix time).

    slurmctld treats an unknown user as uid 99, which may read data and submit jobs.
    """
    issued = int(time.time() if now is None else now)
    claims: dict[str, str | int] = {"sun": user, "iat": issued, "exp": issued + lifetime}
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}"
    return f"{signed}.{_encode(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def from_key(path: Path, user: str, clock: Callable[[], float] = time.time) -> Token:
    """Return a function that returns a token, and makes a new one before the token expires.

    The function reads the key for each new token, so a new key needs no restart.
    """
    token, good_until = "", 0.0

    def current() -> str:
        nonlocal token, good_until
        now = clock()
        if now > good_until - RENEW_BEFORE:
            token = make_token(path.read_bytes(), user, LIFETIME, now)
            good_until = now + LIFETIME
        return token

    return current


def from_file(path: Path) -> Token:
    """Return a function that reads the token from a file, which another program renews."""
    return lambda: path.read_text().strip()


def _part(content: Mapping[str, str | int]) -> str:
    return _encode(json.dumps(content).encode())


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
