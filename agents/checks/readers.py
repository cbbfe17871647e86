"""Fetch the texts that checks judge. Each reader may hang, and so runs in its own process.

A reader is a command, or a function of the checks' limits by name. Functions raise OSError, and
ValueError if the kernel shows something of unknown form.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agents.checks import infiniband
from agents.checks.judging import EARLIER
from agents.containers import settings as containers
from agents.tree import Tree

JAIL: Final = Path("/mnt/jail")
MARKER: Final = "var/lib/slurmstack/jail-refresh"
NODES: Final = "var/lib/slurmstack/nodes"
"""Folder of the jail in which each node writes its own file."""
SETTINGS: Final = Path("/etc/slurmstack/isolation/checks.json")
"""Settings of the nodeset, including the limits of the checks."""
SCRATCH: Final = Path("/var/spool/slurmstack")
SHM: Final = Path("/dev/shm")  # noqa: S108  # only checked for what jobs left there
JOBS: Final = "slurm-jobs"
"""Folder in SCRATCH and in SHM with a directory for each job, named after the ids of job and user.

The directories of ended jobs have the prefix `ended.` until they are removed.
"""
STATE: Final = Path("/run/slurmstack/checks")
"""Folder with texts that readers remember, and with their locks."""
_MIB = 1024 * 1024
_MUNGE = ("sh", "-c", "munge --no-input | unmunge")

Limits = Mapping[str, Mapping[str, Any]]
"""Limits of the checks that are on, by name of the check."""


@dataclass(frozen=True)
class Reader:
    """One source of text, which may serve several checks."""

    name: str
    seconds: float
    """Time limit."""
    command: tuple[str, ...] = ()
    function: Callable[[Limits], str] | None = None
    told: bool = False
    """Whether checks judge its output if it fails. Otherwise they cannot be carried out."""


def disks(limits: Limits) -> str:
    """Return for each file system: % in use, % of inodes in use, `rw` or `ro`, the path."""
    return "".join(_disk(path) for path in limits["disk"]["paths"])


def image_cache(_: Limits, root: Path = JAIL, folder: Path = containers.FOLDER) -> str:
    """Return the same for the directory above users' image caches, with `missing` if it is missing.

    Empty for caches in home directories.
    """
    path = containers.read(folder).above_caches()
    if path is None:
        return ""
    try:
        with Tree(root).opened(path, os.O_RDONLY | os.O_DIRECTORY, links=True) as fd:
            return _file_system(os.fstatvfs(fd), path)
    except (FileNotFoundError, NotADirectoryError):
        return f"0 0 missing {path}\n"


def _disk(path: str) -> str:
    return _file_system(os.statvfs(path), path)


def _file_system(volume: os.statvfs_result, path: str) -> str:
    mode = "ro" if volume.f_flag & os.ST_RDONLY else "rw"
    # As in df(1): relative to what users may have, which is less than all.
    used, inodes = volume.f_blocks - volume.f_bfree, volume.f_files - volume.f_ffree
    return (
        f"{_percent(used, used + volume.f_bavail)} "
        f"{_percent(inodes, inodes + volume.f_favail)} {mode} {path}\n"
    )


def _percent(part: int, whole: int) -> int:
    return -(-100 * part // whole) if whole else 0


def memory(_: Limits, root: Path = Path("/")) -> str:
    """Return in MiB the `limit` of the pod, or else of the machine, and the `free` part of it.

    Memory that the kernel can drop at once is free: pages of files, and cached metadata of files.
    """
    meminfo = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
    limit, free = (int(meminfo[name].split()[0]) // 1024 for name in ("MemTotal", "MemAvailable"))
    cgroup = root / "sys/fs/cgroup"
    for folder, most, usage, caches in (
        (
            cgroup,
            "memory.max",
            "memory.current",
            ("inactive_file", "active_file", "slab_reclaimable"),
        ),
        (
            cgroup / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ("total_inactive_file", "total_active_file"),
        ),
    ):
        if (folder / most).exists():
            text = (folder / most).read_text().strip()
            counts = dict(
                line.split() for line in (folder / "memory.stat").read_text().splitlines()
            )
            cached = sum(int(counts.get(name, 0)) for name in caches)
            used = int((folder / usage).read_text()) - cached
            # Version 1 shows a missing limit as a number that no machine reaches.
            if text != "max" and int(text) // _MIB < limit:
                limit = int(text) // _MIB
                free = min(free, limit - used // _MIB)
            break
    return f"limit {limit}\nfree {free}\n"


def processes(_: Limits, proc: Path = Path("/proc"), state: Path = STATE) -> str:
    """Return a line for each process.

    The fields are pid, parent, uid, state, start, number of sleeps, name, and a step's command
    line. The start is in ticks since the machine started. The number of sleeps is given only for
    processes that seem to hang in the kernel.
    """
    found = "".join(_process(path) for path in sorted(proc.iterdir()) if path.name.isdecimal())
    return _remembered("processes", found, 30, state)


def _process(path: Path) -> str:
    try:
        line = (path / "stat").read_bytes().decode(errors="replace")
        # proc_pid_stat(5): the name is in parentheses, and may contain any character.
        name = line[line.index("(") + 1 : line.rindex(")")]
        fields = line[line.rindex(")") + 2 :].split()
        status = _status(path)
        woken = status.get("voluntary_ctxt_switches", "-") if _hangs(status) else "-"
        uid = status["Uid"].split()[0]
        command = ""
        # Users can give their own processes this name.
        if name == "slurmstepd" and uid == "0":
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    name = _printable("_".join(name.split())) or "-"
    return (
        f"{path.name} {fields[1]} {uid} {fields[0]} {fields[19]} {woken} {name} "
        f"{_printable(command)}\n"
    )


def _status(path: Path) -> dict[str, str]:
    """Return the fields of proc_pid_status(5)."""
    lines = (path / "status").read_bytes().decode(errors="replace").split("\n")
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _hangs(status: Mapping[str, str]) -> bool:
    """Return whether a process is in state D, and is root's or has not ended after SIGKILL.

    Any user can have processes in that state, by vfork(2). But SIGKILL ends those at once.
    """
    if not status["State"].startswith("D"):
        return False
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return status["Uid"].split()[0] == "0" or bool(pending & 1 << (signal.SIGKILL - 1))


def _printable(text: str) -> str:
    """Replace characters so that a text stays in one line."""
    return "".join(character if character.isprintable() else "?" for character in text)


def jail(
    _: Limits,
    root: Path = JAIL,
    settings: Path = SETTINGS,
    clock: Callable[[], float] = time.time,
) -> str:
    """Return the jail's `generation`, its age, the age of the settings, and whether it is writable.

    Ages are in seconds. `ahead` is how far the storage's clock is ahead of this node's, in seconds.
    `written` is `full` on a full volume: that is no fault of the node, which can write to it.
    """
    tree = Tree(root)
    marker = tree.status(MARKER)
    if marker is None:
        return ""
    found = {
        "generation": tree.read(MARKER).strip(),
        "generation_age": f"{clock() - marker.st_mtime:.0f}",
        "settings_age": f"{clock() - settings.stat().st_mtime:.0f}",
    }
    try:
        found |= {"ahead": f"{_write(tree, clock):.3f}", "written": "yes"}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        found["written"] = "full" if full else error.strerror or str(error)
    return "".join(f"{name} {value}\n" for name, value in found.items())


def _write(tree: Tree, clock: Callable[[], float]) -> float:
    """Write this node's file, and return how far its time is ahead of this node's, in seconds."""
    tree.make_folder(NODES, 0o700)
    before = clock()
    path = f"{NODES}/{node_name()}"
    with tree.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) as file:
        os.write(file, b"seen\n")
    with tree.opened(path) as file:
        written = os.fstat(file).st_mtime
    # The kernel's clock for times of files advances in steps of at most 10 ms.
    return min(written - before + 0.01, 0) + max(written - clock(), 0)


def leftovers(_: Limits, scratch: Path = SCRATCH, shm: Path = SHM) -> str:
    """Return the use of /dev/shm, and the directories of jobs.

    The lines are `shm`, MiB in use, path; and for each directory `job`, age in seconds, name.
    """
    volume = os.statvfs(shm)
    used = (volume.f_blocks - volume.f_bfree) * volume.f_frsize // _MIB
    folders = [folder / JOBS for folder in (scratch, shm) if (folder / JOBS).is_dir()]
    return f"shm {used} {shm}\n" + "".join(_job_directories(folders))


def _job_directories(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for entry in os.scandir(folder):
            # A job may end meanwhile.
            with suppress(FileNotFoundError):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                yield f"job {age:.0f} {entry.name}\n"


def ports(_: Limits, devices: Path = Path("/sys/class/infiniband"), state: Path = STATE) -> str:
    """Return lines in the format of `agents.checks.infiniband`, and those of about an hour ago."""
    found = "".join(_port(path) for path in sorted(devices.glob("*/ports/*")))
    return _remembered("infiniband", found, 3600, state)


def _port(port: Path) -> str:
    files = [*(port / name for name in infiniband.VALUES)]
    files += [port / "counters" / name for name in (infiniband.DOWNED, *infiniband.ERRORS)]
    place = f"{port.parent.parent.name} {port.name}"
    return "".join(
        f"{place} {file.name} {file.read_text().strip()}\n" for file in files if file.exists()
    )


def job_gpus(_: Limits) -> str:
    """Return the indexes of the GPUs of this prolog's or epilog's job."""
    return os.environ.get("SLURM_JOB_GPUS", "")


def node_name() -> str:
    """Return the node's name in Slurm. slurmd sets it for its own programs, and the pod for all
    programs."""
    return os.environ.get("SLURMD_NODENAME") or os.environ.get("NODE_NAME") or os.uname().nodename


def _remembered(name: str, text: str, seconds: float, state: Path) -> str:
    """Return a text with the earlier one, which is replaced once it is `seconds` old."""
    path = state / name
    try:
        age = time.time() - path.stat().st_mtime
        before = f"{EARLIER}{age:.0f}\n{path.read_text()}"
    except FileNotFoundError:
        age, before = seconds, ""
    if age >= seconds:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)
    return text + before


READERS: Mapping[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("nvidia-smi", 6, command=("nvidia-smi", "--query"), told=True),
        Reader("nvlink", 6, command=("nvidia-smi", "nvlink", "--status"), told=True),
        Reader("kernel", 3, command=("dmesg", "--raw")),
        Reader("infiniband", 3, function=ports),
        Reader("disks", 3, function=disks),
        Reader("image-cache", 3, function=image_cache),
        Reader("memory", 3, function=memory),
        Reader("processes", 4, function=processes),
        Reader("jail", 5, function=jail),
        Reader("munge", 5, command=_MUNGE, told=True),
        Reader("leftovers", 4, function=leftovers),
        Reader("job", 1, function=job_gpus),
    )
}
