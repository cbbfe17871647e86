"""Fetch the texts that checks evaluate. Each reader runs in its own process, because it may hang.

A reader is a command, or a function that gets the limits of the checks. A function raises OSError
if it cannot read, and ValueError if it reads an unknown format.
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

from agents import cgroups
from agents.checks import infiniband
from agents.checks.judging import EARLIER
from agents.containers import settings as containers
from agents.tree import Tree

JAIL: Final = Path("/mnt/jail")
MARKER: Final = "var/lib/slurmstack/jail-refresh"
NODES: Final = "var/lib/slurmstack/nodes"
"""Folder in the jail. Each node writes a file to this folder, to test whether it can write."""
SETTINGS: Final = Path("/etc/slurmstack/isolation/checks.json")
"""Settings of the nodeset, including the limits of the checks."""
SCRATCH: Final = Path("/var/spool/slurmstack")
SHM: Final = Path("/dev/shm")  # noqa: S108  # only read
JOBS: Final = "slurm-jobs"
"""Folder in SCRATCH and in SHM that has a directory for each job. The directory of job 42 of the
user 2000 is `42.2000`.

After the end of the job, the directory's name gets the prefix `ended.` until it is removed.
"""
_FROZEN: Final = {"freezer": ("freezer.state", "FROZEN"), "": ("cgroup.events", "frozen 1")}
"""File of a cgroup, and the line that this file contains if the cgroup is frozen. The keys are the
hierarchies: `freezer` for version 1 of cgroups, and "" for version 2."""
GRES: Final = Path("/run/slurmstack/node/gres.conf")
"""The node's gres.conf, which `agents.node` writes. The path is repeated here, because an import of
`agents.node` is too slow for each check."""
STATE: Final = Path("/run/slurmstack/checks")
"""Folder with earlier texts of readers, and with their locks."""
_MIB = 1024 * 1024
_MUNGE = ("sh", "-c", "munge --no-input | unmunge")

Limits = Mapping[str, Mapping[str, Any]]
"""Limits of the enabled checks, by name of the check."""


@dataclass(frozen=True)
class Reader:
    """Source of a text. Several checks may use the same reader."""

    name: str
    seconds: float
    """Time limit."""
    command: tuple[str, ...] = ()
    function: Callable[[Limits], str] | None = None
    told: bool = False
    """Whether checks evaluate the output of this reader even if the reader failed. If not, the
    verdict after a failure is `unknown`."""


def disks(limits: Limits) -> str:
    """Return one line per file system.

    The columns are the percentage of space in use, the percentage of inodes in use, `rw` or `ro`,
    and the path.
    """
    return "".join(_disk(path) for path in limits["disk"]["paths"])


def image_cache(_: Limits, root: Path = JAIL, folder: Path = containers.FOLDER) -> str:
    """Return a line like those of `disks` for the directory that contains all users' image caches.

    If this directory is missing, the line contains `missing` instead of `rw`. If each cache is in
    the user's home directory, there is no line.
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
    # Compute the percentage as df(1) does, without the space that only root may use.
    used, inodes = volume.f_blocks - volume.f_bfree, volume.f_files - volume.f_ffree
    return (
        f"{_percent(used, used + volume.f_bavail)} "
        f"{_percent(inodes, inodes + volume.f_favail)} {mode} {path}\n"
    )


def _percent(part: int, whole: int) -> int:
    return -(-100 * part // whole) if whole else 0


def memory(_: Limits, root: Path = Path("/")) -> str:
    """Return the memory `limit` of the pod, and how much of this memory is `free`, in MiB.

    If the pod has no limit, its limit is the memory of the machine. Cached files and their metadata
    count as free, because the kernel can reclaim this memory at once.
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
            # Use the pod's limit only if it is lower than the machine's memory: version 1 of
            # cgroups has a huge number instead of "no limit".
            if text != "max" and int(text) // _MIB < limit:
                limit = int(text) // _MIB
                free = min(free, limit - used // _MIB)
            break
    return f"limit {limit}\nfree {free}\n"


def processes(
    _: Limits, proc: Path = Path("/proc"), state: Path = STATE, groups: Path = cgroups.ROOT
) -> str:
    """Return one line for each current process, and then the lines of an earlier reading.

    The columns are pid, parent, uid, state, start, number of voluntary context switches, name and
    command line. The start is in ticks since the machine started. The number of context switches is
    `-` if the process does not seem to hang in the kernel. The command line is empty except for
    slurmstepd.
    """
    paths = sorted(path for path in proc.iterdir() if path.name.isdecimal())
    found = "".join(_process(path, groups) for path in paths)
    return _remembered("processes", found, 30, state)


def _process(path: Path, groups: Path) -> str:
    try:
        line = (path / "stat").read_bytes().decode(errors="replace")
        # proc_pid_stat(5): the name is in parentheses, and may contain any character.
        name = line[line.index("(") + 1 : line.rindex(")")]
        fields = line[line.rindex(")") + 2 :].split()
        status = _status(path)
        hangs = _hangs(status) and not _is_frozen(path, groups)
        woken = status.get("voluntary_ctxt_switches", "-") if hangs else "-"
        uid = status["Uid"].split()[0]
        command = ""
        # Also check the uid, because users can give their own processes the name slurmstepd.
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
    """Return whether a process seems to hang in the kernel.

    Such a process is in state D (uninterruptible sleep). It also belongs to root, or has a pending
    SIGKILL. Any user can put a process into state D with vfork(2), but SIGKILL ends such a process
    at once. So a user's process hangs only if SIGKILL has not ended it.
    """
    if not status["State"].startswith("D"):
        return False
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return status["Uid"].split()[0] == "0" or bool(pending & 1 << (signal.SIGKILL - 1))


def _is_frozen(process: Path, groups: Path) -> bool:
    """Return whether a process belongs to a suspended job. Slurm freezes the cgroups of such a job.

    `groups` is the root of the container's cgroups. The path of the process's cgroup in
    /proc/PID/cgroup may begin with ancestors of this root, so try all ends of the path.
    """
    for line in (process / "cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers not in _FROZEN:
            continue
        file, text = _FROZEN[controllers]
        parts = group.strip("/").split("/")
        folders = (groups.joinpath(controllers, *parts[start:]) for start in range(len(parts)))
        state = next((found for folder in folders if (found := folder / file).exists()), None)
        if state and text in state.read_text().splitlines():
            return True
    return False


def _printable(text: str) -> str:
    """Replace unprintable characters, so that the text contains no line break."""
    return "".join(character if character.isprintable() else "?" for character in text)


def jail(
    _: Limits,
    root: Path = JAIL,
    settings: Path = SETTINGS,
    clock: Callable[[], float] = time.time,
) -> str:
    """Return the jail's `generation`, its age, the age of the settings, `ahead` and `written`.

    The generation is the value of the setting jail.refresh with which the jail was populated. Ages
    are in seconds. `ahead` is the storage's clock minus the node's clock, in seconds. `written` is
    `yes` if the node can write to the jail, `full` if the volume is full, or else an error. `full`
    is a separate value, because a full volume is not a fault of the node.
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
    """Write this node's file, and return the file's time minus the node's time, in seconds."""
    tree.make_folder(NODES, 0o700)
    before = clock()
    path = f"{NODES}/{node_name()}"
    with tree.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) as file:
        os.write(file, b"seen\n")
    with tree.opened(path) as file:
        written = os.fstat(file).st_mtime
    # Tolerate 10 ms, because the kernel's clock for file times advances in steps of up to 10 ms.
    return min(written - before + 0.01, 0) + max(written - clock(), 0)


def leftovers(_: Limits, scratch: Path = SCRATCH, shm: Path = SHM) -> str:
    """Return the use of /dev/shm, and the directories of jobs.

    The first line is `shm`, MiB in use and path. Each directory has a line with `job`, age in
    seconds and name.
    """
    volume = os.statvfs(shm)
    used = (volume.f_blocks - volume.f_bfree) * volume.f_frsize // _MIB
    folders = [folder / JOBS for folder in (scratch, shm) if (folder / JOBS).is_dir()]
    return f"shm {used} {shm}\n" + "".join(_job_directories(folders))


def _job_directories(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for entry in os.scandir(folder):
            # Skip a directory that was removed after scandir had listed it.
            with suppress(FileNotFoundError):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                yield f"job {age:.0f} {entry.name}\n"


def ports(_: Limits, devices: Path = Path("/sys/class/infiniband"), state: Path = STATE) -> str:
    """Return the state of the ports now and about an hour ago.

    `agents.checks.infiniband` describes the format.
    """
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
    """Return the indexes of the job's GPUs in a prolog or epilog. Otherwise return ""."""
    return os.environ.get("SLURM_JOB_GPUS", "")


def gres(_: Limits, file: Path = GRES) -> str:
    """Return the node's own gres.conf, or "" if the node has none."""
    return file.read_text() if file.exists() else ""


def node_name() -> str:
    """Return the node's name in Slurm, from a variable that slurmd sets, or else the pod."""
    return os.environ.get("SLURMD_NODENAME") or os.environ.get("NODE_NAME") or os.uname().nodename


def _remembered(name: str, text: str, seconds: float, state: Path) -> str:
    """Return `text` together with the stored earlier text.

    If the stored text is at least `seconds` old, store `text` instead, for later calls.
    """
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
        Reader("gres", 1, function=gres),
    )
}
