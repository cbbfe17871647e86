"""Run slurmd, and restart it after a signal has ended it, for example a segmentation fault.

`python3 -I keep_slurmd.py PORT COMMAND ...` runs until COMMAND exits by itself, and returns its
exit code. Jobs go on while slurmd is away, as on any machine. They would end with it if slurmd were
the first process of its container. So if slurmd fails while jobs run, for example because it cannot
start with a new configuration, it is restarted as well.

The port stays open between two starts. Otherwise a job could open it, and receive what slurmctld
sends, including other users' scripts. slurmd gets the port as its standard input: it closes all
other files when it starts, and SLURMD_RECONF_LISTEN_FD names the file that it listens on (slurmd.c
of Slurm 24.11).

The same port of IPv6 stays open too, and answers no connection. Otherwise any user could receive
what is sent to the port of IPv4: the kernel prefers sockets of IPv6 with SO_REUSEPORT,
SO_BINDTODEVICE and SO_INCOMING_CPU to the socket of slurmd.

If the daemons exceed the node's memory, the kernel ends a slurmstepd and not slurmd: every
slurmstepd gets a higher oom_score_adj. (The plugin gives tasks the highest.)
"""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

PAUSE: Final = 1.0
"""Seconds between an end and the next start."""
PAUSE_AFTER_FAILURE: Final = 10.0
"""The same after slurmd has failed: it probably fails again."""
_SLURMSTEPD_FIRST: Final = 100
"""Added to slurmd's oom_score_adj for slurmstepd, in thousandths of the node's memory."""
_HIGHEST_SCORE: Final = 999
"""Below that of tasks."""
_BACKLOG: Final = 4096
"""Connections that wait until slurmd accepts them: as many as Slurm itself allows."""


class Keeper:
    """Runs one slurmd after the other, until one exits by itself or `end` is called."""

    def __init__(self, command: Sequence[str], jobs_run: Callable[[], bool]) -> None:
        """Keep the slurmd that `command` starts. `jobs_run` returns whether the node has jobs."""
        self._command = command
        self._jobs_run = jobs_run
        self._running: subprocess.Popen[bytes] | None = None
        self._is_to_end = False

    def run(self, listener: socket.socket) -> int:
        """Return the exit code of the last slurmd, 128 and more if a signal ended it."""
        environment = {
            **os.environ,
            "SLURMD_RECONF_LISTEN_FD": "0",
            "SLURMSTEPD_OOM_ADJ": str(slurmstepd_score()),
        }
        code = 0
        while not self._is_to_end:
            with subprocess.Popen(
                self._command, stdin=listener.fileno(), env=environment
            ) as self._running:
                code = self._running.wait()
            if code == 0 or self._is_to_end or (code > 0 and not self._jobs_run()):
                break
            why = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
            print(f"slurmd {why}: restarting it, jobs continue", flush=True)
            time.sleep(PAUSE if code < 0 else PAUSE_AFTER_FAILURE)
        return code if code >= 0 else 128 - code

    def end(self) -> None:
        """End slurmd, and do not restart it."""
        self._is_to_end = True
        if self._running is not None:
            self._running.terminate()


def slurmstepd_score(file: Path = Path("/proc/self/oom_score_adj")) -> int:
    """Return the oom_score_adj of slurmstepd, from slurmd's."""
    return min(int(file.read_text()) + _SLURMSTEPD_FIRST, _HIGHEST_SCORE)


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


def steps_run(proc: Path = Path("/proc")) -> bool:
    """Return whether a slurmstepd runs: each step of a job has one."""
    return any(_name(process) == "slurmstepd" for process in proc.glob("[0-9]*"))


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        # The process has ended.
        return ""


def main(port: int, command: Sequence[str]) -> int:
    """Return the exit code of slurmd. Raises OSError if the port is in use."""
    keeper = Keeper(command, steps_run)
    signal.signal(signal.SIGTERM, lambda *_: keeper.end())
    with ExitStack() as stack:
        return keeper.run(hold(port, stack))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
