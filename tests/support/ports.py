"""TCP ports for servers that a test starts."""

import socket


def free_port() -> int:
    """Return a port that is free at every address."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
