"""The virtual machine: QEMU with software emulation, which requires no hardware support."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.machine.disks import PAYLOAD, PROJECT, Payload, System
from tests.support.commands import checked, execute
from tests.support.ports import free_port
from tests.support.waiting import eventually

_OPTIONS: Final = (
    *("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"),
    "ConnectTimeout=10",
)
_MEMORY: Final = "9G"
_DRIVE: Final = "format=raw,if=virtio"
_START: Final = 300
"""Maximum time in seconds until login works."""
_BOOTS: Final = 3
_STOP: Final = 120


@dataclass(frozen=True)
class Machine:
    """A running machine. Commands run as root in the project's folder."""

    port: int
    """Port on this host's loopback that leads to the machine's sshd."""
    key: Path
    """Private key for the login as root."""

    def run(self, command: str, timeout: float = 600) -> str:
        """Return the output of a command. Raises AssertionError with the output if it fails."""
        return checked(self.ssh(f"cd {PROJECT} && {command}", timeout)).stdout

    def ssh(self, command: str, timeout: float) -> subprocess.CompletedProcess[str]:
        where = ("-F", "/dev/null", "-i", str(self.key), "-p", str(self.port), "root@127.0.0.1")
        words = [word for option in _OPTIONS for word in ("-o", option)]
        return execute(["ssh", *words, *where, command], check=False, timeout=timeout)


@contextmanager
def started(system: System, payload: Payload, key: Path, console: Path) -> Iterator[Machine]:
    """Start a machine, whose disk files stay unchanged. Write its console output to `console`."""
    machine = Machine(free_port(), key)
    process = _boot(_command(system, payload, machine.port, console), machine)
    try:
        checked(machine.ssh(f"tar -xf {PAYLOAD}/project.tar -C {PROJECT}", _START))
        # Wait until Docker runs, because login works before systemd has started Docker.
        checked(machine.ssh("systemctl start docker", _START))
        yield machine
    finally:
        process.terminate()
        process.wait(_STOP)


def _boot(command: list[str], machine: Machine) -> subprocess.Popen[bytes]:
    """Start the machine, and return QEMU's process when login works.

    The machine's kernel sometimes crashes (panics) during its start, because QEMU's emulation with
    several threads has a race for code that modifies itself. In this case, start it again.
    """
    for _ in range(_BOOTS):
        process = _start(command, machine)
        if process.poll() is None:
            return process
    raise AssertionError(
        f"QEMU exited {_BOOTS} times before login worked, the last time with exit code "
        f"{process.returncode}; see the kernel's messages in the console's output"
    )


def _start(command: list[str], machine: Machine) -> subprocess.Popen[bytes]:
    """Start QEMU, and wait until login works or QEMU has ended."""
    process = subprocess.Popen(command)
    try:
        eventually("login works", lambda: process.poll() is not None or _answers(machine), _START)
    except BaseException:
        process.kill()
        raise
    return process


def _answers(machine: Machine) -> bool:
    return machine.ssh("true", 30).returncode == 0


def _command(system: System, payload: Payload, port: int, console: Path) -> list[str]:
    return [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2"),
        *("-m", _MEMORY, "-display", "none", "-serial", f"file:{console}", "-no-reboot"),
        *("-kernel", str(system.kernel), "-initrd", str(system.initrd)),
        # Emulation is slow with the kernel's mitigations, and with page tables of five levels.
        *("-append", "root=/dev/vda rw console=ttyS0 mitigations=off panic=-1"),
        *("-drive", f"file={system.disk},{_DRIVE},snapshot=on,cache=unsafe"),
        *("-drive", f"file={payload.project},{_DRIVE},readonly=on"),
        *("-drive", f"file={payload.docker},{_DRIVE},snapshot=on,cache=unsafe"),
        *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22"),
        *("-device", "virtio-net-pci,netdev=net"),
    ]
