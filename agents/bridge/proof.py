"""Prove that a question to the bridge comes from a node.

Nodes and the bridge share a key. A node signs the path and the time of its question, in the header
`Authorization: slurmstack <Unix time> <HMAC-SHA256 in hexadecimal>`. So who reads a question does
not learn the key. This module needs only the standard library.
"""

import hashlib
import hmac
from typing import Final

SCHEME: Final = "slurmstack"
WINDOW: Final = 300.0
"""Seconds for which a proof is valid. Clocks may differ by as much. Munge has the same default."""


def proof(key: bytes, path: str, now: float) -> str:
    """Return the value of the header. `now` is the Unix time."""
    moment = str(int(now))
    return f"{SCHEME} {moment} {_signature(key, path, moment)}"


def is_valid(value: str, key: bytes, path: str, now: float) -> bool:
    """Return whether a value of the header proves that a node asks now for this path."""
    match value.split(" "):
        case [scheme, moment, signature] if scheme == SCHEME and moment.isascii():
            expected = _signature(key, path, moment)
            return (
                hmac.compare_digest(signature.encode(), expected.encode())
                and abs(now - int(moment)) <= WINDOW
            )
        case _:
            return False


def _signature(key: bytes, path: str, moment: str) -> str:
    return hmac.new(key, f"{moment} {path}".encode(), hashlib.sha256).hexdigest()
