"""Run slurmd, and restart it after a signal has ended it, for example a segmentation fault.

`python3 -I keep_slurmd.py PORT COMMAND ...` runs until COMMAND exits by itself, and returns its
exit code. Jobs go on while slurmd is away, as on any machine. They would end with it if slurmd were
the first process of its container.

The port stays open between two starts. Otherwise a job could open it, and receive what slurmctld
sends, including other users' scripts. slurmd gets the port as its standard input: it closes all
other files when it starts, and SLURMD_RECONF_LISTEN_FD names the file that it listens on (slurmd.c
of Slurm 24.11).

The same port of IPv6 stays open too, and answers no connection. Otherwise any user could receive
what is sent to the port of IPv4: the kernel prefers sockets of IPv6 with SO_REUSEPORT,
SO_BINDTODEVICE and SO_INCOMING_CPU to the socket of slurmd.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

PAUSE: Final = 1.0
"""Seconds between an end and the next start."""
_BACKLOG: Final = 4096
"""Connections that wait until slurmd accepts them: as many as Slurm itself allows."""


class Keeper:
    """Runs one slurmd after the other, until one exits by itself or `end` is called."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._running: subprocess.Popen[bytes] | None = None
        self._is_to_end = False

    def run(self, listener: socket.socket) -> int:
        """Return the exit code of the last slurmd, 128 and more where a signal ended it."""
        environment = {**os.environ, "SLURMD_RECONF_LISTEN_FD": "0"}
        code = 0
        while not self._is_to_end:
            with subprocess.Popen(
                self._command, stdin=listener.fileno(), env=environment
            ) as self._running:
                code = self._running.wait()
            if code >= 0:
                break
            print(f"slurmd was ended by signal {-code}: it starts again, jobs go on", flush=True)
            time.sleep(PAUSE)
        return code if code >= 0 else 128 - code

    def end(self) -> None:
        """End slurmd, and do not restart it."""
        self._is_to_end = True
        if self._running is not None:
            self._running.terminate()


def hold(port: int, stack: ExitStack) -> socket.socket:
    """Open the port for IPv4 and IPv6, and return the socket for IPv4.

    Raises OSError if the port is in use.
    """
    listener = stack.enter_context(socket.create_server(("", port), backlog=_BACKLOG))
    same = ("", listener.getsockname()[1])
    try:
        stack.enter_context(socket.create_server(same, family=socket.AF_INET6, backlog=0))
    except OSError as error:
        # The kernel may lack IPv6.
        if error.errno != errno.EAFNOSUPPORT:
            raise
    return listener


def main(port: int, command: Sequence[str]) -> int:
    """Exit code of slurmd. Raises OSError where the port is in use."""
    keeper = Keeper(command)
    signal.signal(signal.SIGTERM, lambda *_: keeper.end())
    with ExitStack() as stack:
        return keeper.run(hold(port, stack))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
