"""`python3 -m agents.reconciler.rebooter`: reboot its own machine if the reconciler requests it.

It sees the machine's processes, may call reboot(2) and may read Nodes, and can do nothing else. The
request is an annotation that names the boot that must end. No request is therefore carried out
twice: after the reboot, the boot has another ID.

Environment: MACHINE, the name of its Node.
"""

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

from agents import labels
from agents.kubernetes import Api, KubernetesError, in_cluster
from agents.say import say

INTERVAL = 15
"""Seconds between two reads of the request."""
ORDERLY = 180
"""Seconds that the machine's init has to reboot it in good order."""
SIGRTMIN_REBOOT = signal.SIGRTMIN + 5
"""Signal on which systemd(1) starts reboot.target; other inits ignore it."""
RB_AUTOBOOT = 0x01234567
"""Command of reboot(2) that restarts the machine."""


def is_asked(request: str, boot: str, started: float) -> bool:
    """Return whether a request is for this boot, whose first process started at that Unix time.

    If machines are containers, the boot's ID is the host's and outlives a restart. A machine that
    started after the request has therefore carried it out.
    """
    asked, _, at = request.partition(" ")
    return asked == boot and at.isdecimal() and started < int(at)


def request_of(api: Api, machine: str) -> str:
    """Read the request for a machine. Raises `KubernetesError`."""
    found = api.ask("GET", f"/api/v1/nodes/{machine}")
    return str((found["metadata"].get("annotations") or {}).get(labels.REBOOT, ""))


def boot_id(proc: Path = Path("/proc")) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def started(proc: Path = Path("/proc")) -> float:
    """Return the Unix time at which the machine's first process started, from proc(5)."""
    lines = (proc / "stat").read_text().splitlines()
    booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    # The process's name, in parentheses, may contain spaces.
    fields = (proc / "1/stat").read_text().rpartition(")")[2].split()
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def reboot(stop: threading.Event) -> None:
    """Reboot by the machine's init, or by reboot(2) after `ORDERLY` seconds. Raises `OSError`."""
    os.sync()
    os.kill(1, SIGRTMIN_REBOOT)
    if stop.wait(ORDERLY):
        return
    if ctypes.CDLL(None, use_errno=True).reboot(RB_AUTOBOOT):
        number = ctypes.get_errno()
        raise OSError(number, f"reboot: {os.strerror(number)}")


def main() -> int:
    machine = os.environ["MACHINE"]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.wait(INTERVAL):
        try:
            if is_asked(request_of(in_cluster(), machine), boot_id(), started()):
                say("warn", f"machine {machine} reboots at the reconciler's request")
                reboot(stop)
        except (KubernetesError, OSError) as error:
            say(
                "error",
                f"machine {machine}: cannot check for a reboot request, or cannot reboot: {error}",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
