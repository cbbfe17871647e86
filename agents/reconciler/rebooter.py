"""`python3 -m agents.reconciler.rebooter`: reboots its own machine when the reconciler asks.

It sees the machine's processes and may call reboot(2), and it may read Nodes; there is nothing else
that it can do. It is asked by an annotation that names the boot which is to end, so that no request
is carried out twice: after the reboot, the boot is another one.

It takes from the environment: MACHINE, the name of its Node.
"""

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

from agents.reconciler.kubernetes import Api, KubernetesError, in_cluster
from agents.reconciler.observed import REBOOT
from agents.say import say

INTERVAL = 15
"""Seconds between two looks."""
ORDERLY = 180
"""Seconds that the machine's init is given."""
SIGRTMIN_REBOOT = signal.SIGRTMIN + 5
"""By which systemd(1) starts reboot.target; other inits do nothing on it."""
RB_AUTOBOOT = 0x01234567
"""Of reboot(2)."""


def is_asked(request: str, boot: str, started: float) -> bool:
    """Whether a request is for this boot, whose first process started at that Unix time.

    Where machines are containers, the boot's id is that of the host, and outlives a restart: what
    started after the request has done what it asks for.
    """
    asked, _, at = request.partition(" ")
    return asked == boot and at.isdecimal() and started < int(at)


def request_of(api: Api, machine: str) -> str:
    """Raises `KubernetesError`."""
    found = api.ask("GET", f"/api/v1/nodes/{machine}")
    return str((found["metadata"].get("annotations") or {}).get(REBOOT, ""))


def boot_id(proc: Path = Path("/proc")) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def started(proc: Path = Path("/proc")) -> float:
    """Unix time at which the machine's first process started, from proc(5)."""
    lines = (proc / "stat").read_text().splitlines()
    booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    # The process's name, in parentheses, may hold blanks.
    fields = (proc / "1/stat").read_text().rpartition(")")[2].split()
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def reboot(stop: threading.Event) -> None:
    """In good order where the machine's init knows how, else at once. Raises `OSError`."""
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
                say("warn", f"machine {machine} reboots, as the reconciler asks")
                reboot(stop)
        except (KubernetesError, OSError) as error:
            say("error", f"machine {machine} is not rebooted: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
