"""Tokens by which slurmrestd knows who asks: JSON web tokens, signed with slurmctld's key.

What slurmctld wants in one is told by https://slurm.schedmd.com/jwt.html: HS256, and the claims
`sun` (the user's name), `iat` and `exp` (Unix time).
"""

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

DEFAULT_KEY = Path("/etc/slurmstack/jwt/jwt_hs256.key")
"""Where pods that may make tokens mount the key."""
LIFETIME = 300
"""Seconds that an agent's own token is good for."""
RENEW_BEFORE = 60
"""Seconds that a token in use is good for at least: clocks differ, and requests take their time."""

Token = Callable[[], str]
"""Gives a token that is good now."""


def make_token(key: bytes, user: str, lifetime: int, now: float | None = None) -> str:
    """A token for `user`, good for `lifetime` seconds from `now` (by default, from now).

    A user whom slurmctld does not know is to it the user of id 99, who may read and submit.
    """
    issued = int(time.time() if now is None else now)
    claims: dict[str, str | int] = {"sun": user, "iat": issued, "exp": issued + lifetime}
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}"
    return f"{signed}.{_encode(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def from_key(path: Path, user: str, clock: Callable[[], float] = time.time) -> Token:
    """Tokens of one's own making, each used until it is nearly over.

    The key is read anew for each, so that another key in the file needs no restart.
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
    """The token that somebody else keeps fresh in a file."""
    return lambda: path.read_text().strip()


def _part(content: Mapping[str, str | int]) -> str:
    return _encode(json.dumps(content).encode())


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
