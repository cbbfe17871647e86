"""Prepare a node's cgroups for Slurm, and report which resources the cgroups can limit for jobs.

A container runtime mounts the container's own cgroups read-only. This module makes them writable
for root. Jobs see them read-only.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")
SYSTEM: Final = "system"
"""Group (version 2) to which all processes of the container move. Slurm uses the same name."""
SCOPE: Final = "system.slice/{node}_slurmstepd.scope"
"""Group (version 2) in which Slurm creates the groups of jobs (source: cgroup_v2.c, Slurm 24.11).
The path contains the node's name, because Debian builds Slurm so that several slurmd can run on one
machine."""
JOBS_V1: Final = "pids/slurm"
"""Group (version 1) in which the SPANK plugin creates the groups of jobs (see spank/cgroups.c)."""
DAEMONS: Final = "slurmstepd"
"""Parent of the groups in which the SPANK plugin puts slurmstepd, one group for each job (see
spank/cgroups.c)."""
_SHARE: Final = 4
"""Divisor of the machine's process limit. With version 1, the quotient is the limit for all jobs of
a node together, so that other containers can still start processes. With version 2, there is no
limit for all jobs together: slurmd itself is in their group, so the limit would also stop slurmd.
"""
_ATTEMPTS: Final = 50
"""Attempts to enable controllers in a group. An attempt fails if a new process starts in the group
while the existing processes move out."""

# Resources that cgroups can limit for jobs.
PROCESSES, CPUS, MEMORY, SWAP, DEVICES = "processes", "CPUs", "memory", "swap", "devices"
NUMBER = "number of processes"
"""The SPANK plugin sets this limit; Slurm has none."""
USE = "use of resources"
"""Accounting of the resources that jobs use. It limits nothing."""
_CONFINED: Final = (CPUS, MEMORY, SWAP, DEVICES, NUMBER)
_HIERARCHIES: Final = {
    "freezer": (PROCESSES,),
    "cpuset": (CPUS,),
    "memory": (MEMORY, SWAP, USE),
    "devices": (DEVICES,),
    "cpuacct": (USE,),
    "pids": (NUMBER,),
}
"""Resources that each hierarchy of version 1 controls (source: cgroup_v1.c, Slurm 24.11)."""
_CONTROLLERS: Final = {
    "cpuset": (CPUS,),
    "memory": (MEMORY, SWAP, USE),
    "cpu": (USE,),
    "pids": (NUMBER,),
}
"""Resources that each controller of version 2 controls. A BPF program restricts devices."""
Remount = Callable[[Path], None]
"""Function that makes a mount writable. Raises OSError."""


@dataclass(frozen=True)
class Calls:
    """Kernel operations, which tests replace."""

    remount: Remount
    load_guard: Callable[[], None]
    """Loads a BPF program that could restrict the devices of a group. Raises OSError."""


class MissingError(Exception):
    """The node lacks a requirement. The message names the requirement and the remedy."""


@dataclass
class Cgroups:
    """Cgroups of a node, and the resources that they cannot limit."""

    version: int | None = None
    """None if the container has no cgroups."""
    missing: dict[str, str] = field(default_factory=dict)
    """Reasons why the cgroups cannot limit a resource, by resource. If the reason is "", the
    missing limit is not reported."""

    def lack(self, things: Iterable[str], why: str) -> None:
        for thing in things:
            self.missing.setdefault(thing, why)

    def unconfined(self) -> dict[str, str]:
        """Return the resources that a job can use beyond its share, and the reasons.

        USE is left out, because it limits nothing.
        """
        return {thing: why for thing, why in self.missing.items() if why and thing != USE}

    def __str__(self) -> str:
        name = f"cgroups of version {self.version}" if self.version else "cgroups"
        confined = [thing for thing in _CONFINED if thing not in self.missing]
        lacking = self.unconfined()
        if PROCESSES in lacking:
            return f"{name}: jobs cannot be confined: {lacking[PROCESSES]}"
        text = f"{name}: jobs can be confined to their {_joined(confined)}"
        if not confined:
            text = f"{name}: Slurm can find the processes of jobs, but cannot limit their resources"
        reasons = (
            f"jobs cannot be confined to their {thing}: {why}" for thing, why in lacking.items()
        )
        return "; ".join((text, *reasons))


def _joined(words: list[str]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1]) if len(words) > 1 else words)


def prepare(root: Path, proc: Path, calls: Calls, node: str) -> Cgroups:
    """Prepare the container's own groups for Slurm, and report what is missing.

    `root` is the mount point of the groups. `proc` is the kernel's /proc.
    """
    found = Cgroups()
    try:
        if (root / "cgroup.controllers").exists():
            found.version = 2
            _prepare_v2(root, found, calls, node)
        elif (root / "freezer").exists():
            found.version = 1
            _prepare_v1(root, proc, found, calls.remount)
        else:
            raise MissingError(
                f"{root} contains no cgroups: enable cgroups in the kernel of the machine"
            )
    except (MissingError, OSError) as why:
        found.lack((PROCESSES,), str(why))
    if SWAP in found.missing and len((proc / "swaps").read_text().splitlines()) <= 1:
        # Without swap space, no job can use swap, so report nothing. Keep the entry: slurmd does
        # not start if its configuration requires a swap limit that slurmd cannot set.
        found.missing[SWAP] = ""
    return found


def _open(group: Path, processes: Path, remount: Remount) -> None:
    """Make a group writable. Raises MissingError."""
    if str(os.getpid()) not in processes.read_text().split():
        raise MissingError(
            f"{group} is not the container's own cgroup: configure the container runtime to "
            "mount it there"
        )
    try:
        remount(group)
    except OSError as error:
        raise MissingError(
            f"cannot make {group} writable: {error}; give the container of slurmd the "
            "capability SYS_ADMIN"
        ) from error
    # Slurm locks this folder. Without read permission, a job cannot open the folder and lock it.
    group.chmod(0o711)


# --- Version 1: a hierarchy for each resource -----------------------------------------------------


def _prepare_v1(root: Path, proc: Path, found: Cgroups, remount: Remount) -> None:
    for name, things in _HIERARCHIES.items():
        group = (root / name).resolve()
        try:
            if not group.exists():
                raise MissingError(
                    f"{group} is missing; enable the cgroup hierarchy '{name}' in the kernel "
                    "of the machine"
                )
            _open(group, group / "cgroup.procs", remount)
        except (MissingError, OSError) as why:
            found.lack(things, str(why))
    if NUMBER not in found.missing:
        jobs = root / JOBS_V1
        jobs.mkdir(exist_ok=True)
        most = int((proc / "sys/kernel/pid_max").read_text())
        (jobs / "pids.max").write_text(str(most // _SHARE))
    if MEMORY not in found.missing:
        (root / "memory" / DAEMONS).mkdir(exist_ok=True)
    if not (root / "memory/memory.memsw.limit_in_bytes").exists():
        found.lack((SWAP,), "the kernel limits no swap; start the machine with swapaccount=1")


# --- Version 2: one hierarchy for all resources ---------------------------------------------------


def _prepare_v2(root: Path, found: Cgroups, calls: Calls, node: str) -> None:
    system = root / SYSTEM
    own = system if system.exists() else root
    _open(root, own / "cgroup.procs", calls.remount)
    system.mkdir(exist_ok=True)
    available = (root / "cgroup.controllers").read_text().split()
    scope = root / SCOPE.format(node=node)
    _divide(root, system, scope, [name for name in _CONTROLLERS if name in available])
    for name, things in _CONTROLLERS.items():
        if name not in available:
            found.lack(
                things,
                f"the cgroup controller '{name}' is missing; configure the container runtime to "
                "delegate it",
            )
    try:
        calls.load_guard()
    except OSError as why:
        found.lack(
            (DEVICES,),
            f"the kernel rejects the BPF program for devices: {why}; enable CONFIG_CGROUP_BPF in "
            "the kernel",
        )
    if not (root / SYSTEM / "memory.swap.max").exists():
        found.lack((SWAP,), "the kernel limits no swap; start the machine with swapaccount=1")
    # Write 0: with 1, the kernel would kill all processes of a container that exceeds its memory
    # limit.
    if (whole := root / "memory.oom.group").exists():
        whole.write_text("0")


def _divide(root: Path, system: Path, scope: Path, controllers: list[str]) -> None:
    """Enable controllers for the groups of jobs and of slurmstepd. Raises MissingError."""
    wanted = " ".join(f"+{name}" for name in controllers)
    for left in reversed(range(_ATTEMPTS)):
        for process in (root / "cgroup.procs").read_text().split():
            _move(process, system)
        try:
            (root / "cgroup.subtree_control").write_text(wanted)
            break
        except OSError as error:
            if not left:
                raise MissingError(
                    f"cannot enable cgroup controllers in {root}: {error}; restart the pod"
                ) from error
    for group in (scope.parent, scope, root / DAEMONS):
        group.mkdir(exist_ok=True)
        (group / "cgroup.subtree_control").write_text(wanted)
    scope.chmod(0o711)


def _move(process: str, group: Path) -> None:
    # The process may have ended.
    with contextlib.suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(process)


def remount(path: Path) -> None:
    """Make a mount writable. Raises OSError."""
    command = ["mount", "-o", "remount,bind,rw", str(path)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise OSError(" ".join(result.stderr.split()) or f"exit code {result.returncode}")
