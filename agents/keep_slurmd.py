"""Run slurmd, and restart it when a signal such as SIGSEGV ends it.

`python3 -I keep_slurmd.py PORT COMMAND ...` runs COMMAND, which starts slurmd. The program ends
when slurmd exits by itself while no job runs, and returns slurmd's exit code. Jobs continue while
slurmd does not run, because this program, not slurmd, is the first process of the container. While
jobs run, the program also restarts slurmd after an exit, for example after `scontrol shutdown`, or
if slurmd rejects a new configuration.

PORT stays open between two starts of slurmd. Otherwise a job could open the port, and receive what
slurmctld sends, including other users' scripts. slurmd gets the open port as its standard input,
because slurmd closes all other files when it starts. SLURMD_RECONF_LISTEN_FD names the descriptor
on which slurmd listens (source: slurmd.c, Slurm 24.11).

The IPv6 port of the same number stays open too, and accepts no connection. Otherwise any user could
receive the connections to the IPv4 port: the kernel prefers IPv6 sockets with SO_REUSEPORT,
SO_BINDTODEVICE and SO_INCOMING_CPU to slurmd's socket.

Before this program ends, it thaws suspended jobs: in cgroups of version 1, SIGKILL does not end
frozen processes, so the container would never end.

Every slurmstepd gets a higher oom_score_adj than slurmd. So if the daemons exceed the node's
memory, the kernel kills a slurmstepd, not slurmd. The tasks of jobs get the highest value, from the
SPANK plugin.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

PAUSE: Final = 1.0
"""Seconds before a restart after a signal or a shutdown."""
PAUSE_AFTER_FAILURE: Final = 10.0
"""Seconds before a restart after a failure. This pause is longer, because slurmd would probably
fail again at once."""
_SLURMSTEPD_FIRST: Final = 100
"""slurmstepd's oom_score_adj minus slurmd's, in thousandths of the node's memory."""
_HIGHEST_SCORE: Final = 999
"""Maximum of slurmstepd's oom_score_adj. The value of tasks is higher."""
_BACKLOG: Final = 4096
"""Maximum number of connections that slurmd has not accepted yet. Slurm uses the same number."""
FREEZER: Final = Path("/sys/fs/cgroup/freezer")
"""Hierarchy of version 1 in which Slurm freezes the steps of suspended jobs (source:
cgroup_v1.c)."""


class Keeper:
    """Restarts slurmd until slurmd exits by itself while no job runs, or until `end` is called."""

    def __init__(self, command: Sequence[str], jobs_run: Callable[[], bool]) -> None:
        """`command` starts slurmd. `jobs_run` returns whether the node runs jobs."""
        self._command = command
        self._jobs_run = jobs_run
        self._running: subprocess.Popen[bytes] | None = None
        self._is_to_end = False

    def run(self, listener: socket.socket) -> int:
        """Return slurmd's last exit code, or 128 plus the number of the signal that ended it."""
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
            if self._is_to_end or (code >= 0 and not self._jobs_run()):
                break
            print(f"slurmd {_why(code)}; restarting slurmd; running jobs continue", flush=True)
            time.sleep(PAUSE_AFTER_FAILURE if code > 0 else PAUSE)
        return code if code >= 0 else 128 - code

    def end(self) -> None:
        """Terminate slurmd, and do not restart it."""
        self._is_to_end = True
        if self._running is not None:
            self._running.terminate()


def _why(code: int) -> str:
    if code < 0:
        return f"was ended by signal {-code}"
    return f"failed with exit code {code}" if code else "was shut down"


def slurmstepd_score(file: Path = Path("/proc/self/oom_score_adj")) -> int:
    """Return the oom_score_adj for slurmstepd. `file` contains slurmd's value."""
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
    """Return whether a slurmstepd runs. Every job step has one."""
    return any(_name(process) == "slurmstepd" for process in proc.glob("[0-9]*"))


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        # The process has ended.
        return ""


def thaw(freezer: Path = FREEZER) -> None:
    """Thaw all jobs. Without cgroups of version 1, do nothing."""
    for jobs in freezer.glob("slurm*"):
        for folder, _, files in os.walk(jobs):
            if "freezer.state" in files:
                # The job may have ended meanwhile.
                with suppress(OSError):
                    Path(folder, "freezer.state").write_text("THAWED")


def main(
    port: int,
    command: Sequence[str],
    freezer: Path = FREEZER,
    jobs_run: Callable[[], bool] = steps_run,
) -> int:
    """Keep slurmd running, and return its exit code. Raises OSError if the port is in use."""
    keeper = Keeper(command, jobs_run)
    signal.signal(signal.SIGTERM, lambda *_: keeper.end())
    with ExitStack() as stack:
        code = keeper.run(hold(port, stack))
        thaw(freezer)
        return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
