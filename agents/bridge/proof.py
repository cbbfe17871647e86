"""Prove that a question to the bridge comes from a node.

Nodes and the bridge share a key. A node signs the path and the time of its question, in the header
`Authorization: slurmstack <Unix time> <HMAC-SHA256 in hexadecimal>`. So a client that reads a
question on the network does not learn the key. This module needs only the standard library.
"""

import hashlib
import hmac
import threading
from typing import Final

KEY: Final = "/etc/slurmstack/bridge/key"
"""File with the key, on nodes and in the pods of the bridge."""
SCHEME: Final = "slurmstack"
WINDOW: Final = 300.0
"""Seconds for which a proof is valid. Clocks may differ by as much. Munge has the same default."""


def proof(key: bytes, path: str, now: float) -> str:
    """Return the value of the header. `now` is the Unix time."""
    moment = f"{now:.6f}"
    return f"{SCHEME} {moment} {_signature(key, path, moment)}"


def signed_at(value: str, key: bytes, path: str) -> float | None:
    """Return the Unix time at which a node has signed this path, or None if no node has."""
    match value.split(" "):
        case [scheme, moment, signature] if scheme == SCHEME:
            expected = _signature(key, path, moment)
            is_equal = hmac.compare_digest(signature.encode(), expected.encode())
            return float(moment) if is_equal else None
        case _:
            return None


class Proofs:
    """Accepts each proof only once, and for a short time. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        """When the last accepted question for a path was signed."""

    def accept(self, value: str, key: bytes, path: str, now: float) -> bool:
        """Return whether a value of the header proves that a node asks now for this path."""
        moment = signed_at(value, key, path)
        if moment is None or abs(now - moment) > WINDOW:
            return False
        with self._lock:
            recent = {one: at for one, at in self._last.items() if now - at <= WINDOW}
            is_new = moment > recent.get(path, 0.0)
            self._last = {**recent, path: max(moment, recent.get(path, 0.0))}
        return is_new


def _signature(key: bytes, path: str, moment: str) -> str:
    return hmac.new(key, f"{moment} {path}".encode(), hashlib.sha256).hexdigest()
