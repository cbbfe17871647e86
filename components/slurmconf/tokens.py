"""Parameters of slurm.conf and slurmdbd.conf for tokens (JWT), with which users authenticate."""

import math

from components import conventions as c
from components.settings import Settings
from components.settings.types import parse_time

JWKS = "jwks.json"
"""File with the public keys of an identity provider."""


def lifetime_parameter(settings: Settings) -> str:
    """Return the parameter for the longest lifetime of users' tokens, with a leading comma."""
    minutes = parse_time(settings.rest.token_lifetime)
    return "" if math.isinf(minutes) else f",max_token_lifespan={math.ceil(minutes * 60)}"


def token_parameters(settings: Settings, folder: str) -> str:
    """Return the AuthAltParameters of a daemon; `folder` contains the daemon's files."""
    rest = settings.rest
    keys = [f"jwt_key={c.JWT_KEY}"]
    if rest.jwks:
        keys.append(f"jwks={folder}/{JWKS}")
    if rest.user_claim:
        keys.append(f"userclaimfield={rest.user_claim}")
    return ",".join(keys)
