"""Whose tokens Slurm's daemons take."""

from components import conventions as c
from components.settings import Settings

JWKS = "jwks.json"
"""File with the public keys of an identity provider."""


def token_parameters(settings: Settings, folder: str) -> str:
    """AuthAltParameters of a daemon that has its files in `folder`."""
    rest = settings.rest
    keys = [f"jwt_key={c.JWT_KEY}"]
    if rest.jwks:
        keys.append(f"jwks={folder}/{JWKS}")
    if rest.user_claim:
        keys.append(f"userclaimfield={rest.user_claim}")
    return ",".join(keys)
