"""Checks of disks, memory, processes, the clock, the jail and munge.

Each check evaluates text that a reader function has collected on the node. `agents.checks.readers`
describes the formats.
"""

from collections.abc import Iterator, Sequence

from agents.checks.judging import UnknownError, earlier, jobs, listed, rows

SETTLED = 3600
"""Seconds after which all nodes must see a new generation of the jail, and new settings."""


def disk(
    text: str, *, paths: Sequence[str], max_percent: float, max_inodes_percent: float
) -> str | None:
    """Check that no file system at these paths is full, out of inodes, or read-only."""
    return listed(_disks(text, paths, max_percent, max_inodes_percent))


def _disks(text: str, paths: Sequence[str], most: float, most_inodes: float) -> Iterator[str]:
    found = {path: values for *values, path in rows(text, 4)}
    for path in paths:
        if path not in found:
            raise UnknownError(
                f"'{path}' was not read: the reader's output has no line for this path; run "
                "the check again"
            )
        used, used_inodes, mode = found[path]
        if mode == "missing":
            yield f"{path} is missing: check the volume that should be mounted there"
        elif mode == "ro":
            yield f"{path} is read-only: see the kernel's log for errors of this disk"
        elif float(used) > most:
            yield f"{path} is full ({used} %): delete files there"
        elif float(used_inodes) > most_inodes:
            yield f"{path} is out of inodes ({used_inodes} %): delete files there"


def image_cache(text: str, *, max_percent: float) -> str | None:
    """Check that the file system of users' image caches exists, is writable and is not full."""
    paths = [path for *_, path in rows(text, 4)]
    return listed(_disks(text, paths, max_percent, max_percent))


def memory(text: str, processes: str, *, min_percent: float) -> str | None:
    """Check that a node without jobs has most of its memory free."""
    if jobs(processes):
        raise UnknownError(
            "jobs run on this node, but this check requires a node without jobs; no action needed"
        )
    found = {name: int(value) for name, value in rows(text, 2)}
    if found["free"] >= found["limit"] * min_percent / 100:
        return None
    return (
        f"{found['free']} of {found['limit']} MiB of memory are free on a node without jobs, "
        f"expected at least {min_percent:g} %; end leftover processes"
    )


def clock(jail: str, *, max_offset: float) -> str | None:
    """Check that the clocks of the node and of the jail's storage differ by at most `max_offset` s.

    All nodes share the storage, so their clocks then also agree with each other. The reader takes
    the storage's time from the mtime of a file that the node has just written. On some storage, the
    node itself sets the mtime. The check then always passes.
    """
    found = dict(rows(jail, 2))
    if "ahead" not in found:
        raise UnknownError(
            "the clocks of node and storage cannot be compared, because the node cannot write to "
            "the jail; see the check 'jail'"
        )
    ahead = float(found["ahead"])
    if abs(ahead) <= max_offset:
        return None
    return (
        f"the node's clock is {-ahead:+.1f} s off the clock of the jail's storage; check the "
        "time service (NTP) of the machine"
    )


def jail(text: str, *, generation: int | None) -> str | None:
    """Check that the jail is mounted and writable, and has the generation from the settings.

    A node sees a new generation, or new settings, with a delay. So a wrong generation is ignored
    until the jail's generation and the settings are both older than `SETTLED`.
    """
    found = dict(rows(text, 2))
    if "generation" not in found:
        return (
            "the jail is not mounted, or was never populated; check the jail's volume, and the Job "
            "that populates it"
        )
    if found["written"] not in ("yes", "full"):
        return (
            f"the node cannot write to the jail: {found['written']}; check the mount options and "
            "the storage of the jail's volume"
        )
    settled = min(float(found["generation_age"]), float(found["settings_age"])) > SETTLED
    if generation is not None and settled and int(found["generation"]) != generation:
        return (
            f"the jail has generation {found['generation']}, but 'jail.refresh' is "
            f"{generation}; check the Job that populates the jail"
        )
    return None


def munge(text: str) -> str | None:
    """Check that munged can create and decode a credential. `text` is the output of unmunge(1)."""
    said = text.strip().splitlines() or ["no output"]
    return None if any("Success (0)" in line for line in said) else said[0].strip()


def leftovers(text: str, processes: str, *, max_shm_mib: float, min_age: float) -> str | None:
    """Check that ended jobs have left no directories, and no large files in /dev/shm.

    The files in /dev/shm are checked only while no job runs.
    """
    running = jobs(processes)
    found = []
    for kind, value, name in rows(text, 3):
        job = name.removeprefix("ended.").partition(".")[0]
        if kind == "shm" and not running and int(value) > max_shm_mib:
            found.append(f"{value} MiB are in use in {name} although no job runs")
        elif kind == "job" and job not in running and int(value) > min_age:
            found.append(f"directories of the ended job {job} remain in /tmp or /dev/shm")
    return listed(found, "remove these files, or restart the pod")


def stuck(text: str, *, min_seconds: float) -> str | None:
    """Check that no process has hung in the kernel since the earlier reading.

    Such a process is in state D in both readings, and made no context switch between them.
    """
    now, before, age = earlier(text)
    if age < min_seconds:
        raise UnknownError(
            f"the earlier reading is {age:.0f} s old, expected at least {min_seconds:g} s; "
            "run the check again later"
        )
    asleep = set(_waiting(before))
    hanging = (
        f"the process {comm} (pid {pid}) hangs in the kernel"
        for pid, start, woken, comm in _waiting(now)
        if (pid, start, woken, comm) in asleep
    )
    return listed(hanging, "check the storage, or restart the machine")


def _waiting(processes: str) -> Iterator[tuple[str, str, str, str]]:
    for pid, _, _, state, start, woken, comm, *_ in rows(processes, 8):
        if state == "D" and woken != "-":
            yield pid, start, woken, comm
