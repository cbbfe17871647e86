"""`python3 -m agents.reconciler.rebooter`: reboot this machine when the reconciler requests it.

The rebooter sees the machine's processes, may call reboot(2) and may read Nodes. It has no other
rights. The request is an annotation of the machine's Node, with the ID of the current boot. The ID
changes with each reboot, so the rebooter carries out no request twice.

The environment variable MACHINE contains the name of the machine's Node.
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
"""Seconds for a clean reboot by the machine's init."""
SIGRTMIN_REBOOT = signal.SIGRTMIN + 5
"""Signal that makes systemd(1) start reboot.target. Other inits ignore it."""
RB_AUTOBOOT = 0x01234567
"""Command of reboot(2) that restarts the machine."""


def is_asked(request: str, boot: str, started: float) -> bool:
    """Return whether a request is for this boot.

    `started` is the Unix time at which the machine's first process started. A machine that is a
    container has the boot ID of its host, which outlives a restart. So a machine that started after
    the request has already carried out the request.
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
    # The process's name is in parentheses, and may contain spaces.
    fields = (proc / "1/stat").read_text().rpartition(")")[2].split()
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def reboot(stop: threading.Event) -> None:
    """Reboot with the machine's init, or with reboot(2) after `ORDERLY` seconds.

    Raises `OSError`.
    """
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
                say(
                    "warn",
                    f"the rebooter reboots machine {machine}, because the reconciler requested a "
                    "reboot",
                )
                reboot(stop)
        except (KubernetesError, OSError) as error:
            say(
                "error",
                f"machine {machine}: cannot read the reboot request, or cannot reboot: "
                f"{error}; the rebooter tries again",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
