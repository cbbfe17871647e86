"""Runs slurmd, and runs it again where a signal has ended it, as by a fault of its own.

`python3 -I keep_slurmd.py PORT COMMAND ...` ends otherwise when COMMAND does, with its exit code.
As on any machine, jobs go on without slurmd. They would end with it if it were the first process
of its container.

Its port stays open meanwhile. Otherwise a job could open it, and receive what slurmctld sends:
other users' scripts. slurmd has the open port as its standard input. It closes all other files
when it starts, and SLURMD_RECONF_LISTEN_FD has it listen on that one (slurmd.c of Slurm 24.11).

The same port of IPv6 is open as well, and nobody answers there. While it is free, any user can have
the kernel give them what comes by IPv4: sockets of IPv6 with SO_REUSEPORT, SO_BINDTODEVICE and
SO_INCOMING_CPU take precedence over slurmd's.
"""

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
    """One slurmd after the other, until one ends by itself or this process is to end."""

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
        """Have slurmd end, and start no other."""
        self._is_to_end = True
        if self._running is not None:
            self._running.terminate()


def hold(port: int, stack: ExitStack) -> socket.socket:
    """Open the port of IPv4 and IPv6 and return the former. Raises OSError where it is in use."""
    listener = stack.enter_context(socket.create_server(("", port), backlog=_BACKLOG))
    try:
        beside = socket.socket(socket.AF_INET6)
    except OSError:
        return listener  # a kernel without IPv6
    stack.enter_context(beside)
    beside.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    beside.bind(("", listener.getsockname()[1]))
    beside.listen(0)
    return listener


def main(port: int, command: Sequence[str]) -> int:
    """Exit code of slurmd. Raises OSError where the port is in use."""
    keeper = Keeper(command)
    signal.signal(signal.SIGTERM, lambda *_: keeper.end())
    with ExitStack() as stack:
        return keeper.run(hold(port, stack))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
