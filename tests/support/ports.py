"""TCP ports for servers that a test starts."""

import socket


def free_port() -> int:
    """Return a port that nothing listens on, at any address."""
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
