"""Back up a folder of the cluster, and restore it into an empty folder.

restic reads the jail while users change it, so this module counts the files that changed during the
run. Users may replace any directory by a symbolic link at any moment: restic is confined to the
folders (`agents.backup.restic`), and this module uses only open directories.
"""

import fcntl
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from agents.backup import sets
from agents.backup.restic import UNREADABLE, BackupError, Done, Restic

MARK: Final = ".slurmstack-restore"
"""File in a folder that marks an incomplete restore. It contains the id of the set. slurmctld and
the Job that fills the jail do not start while it exists."""
_LOCK: Final = f"{MARK}.lock"
_NOT_OURS: Final = frozenset({MARK, _LOCK, "lost+found", ".snapshot"})
"""Entries that an empty volume may have."""
_BY_USERS: Final = (
    *("no such file or directory", "file name too long", "too many levels of symbolic links"),
    *("not a directory", "stale file handle", "argument list too long", "has changed type"),
)
"""Errors that users cause, who remove files or replace them during the run, or make files that no
program can open. They do not make a backup fail."""
_FOREIGN_ATTRIBUTES: Final = ("security.selinux", "system.nfs4_acl", "trusted.*")
"""Extended attributes that belong to a file system or a machine, and that restic could not set."""
_SHOWN: Final = 5
"""Number of paths that a report names."""
_MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Part:
    """A folder that is one part of a set."""

    name: str
    folder: str
    """Absolute path, as restic sees it."""

    @staticmethod
    def of(text: str) -> "Part":
        """Read `name=folder`."""
        name, _, folder = text.partition("=")
        return Part(name, folder)

    def real(self, restic: Restic) -> Path:
        """Return the folder's path for this program."""
        return restic.root / self.folder.lstrip("/")


@dataclass(frozen=True)
class Limits:
    exclude: tuple[str, ...] = ()
    """Patterns of restic; those with a leading slash are paths in the folder."""
    largest: int | None = None
    """Largest file in MiB."""
    upload: int | None = None
    """Limit for uploads in KiB/s."""

    def options(self, folder: str) -> list[str]:
        patterns = (f"{folder}{one}" if one.startswith("/") else one for one in self.exclude)
        return [
            *([f"--limit-upload={self.upload}"] if self.upload else []),
            *([f"--exclude-larger-than={self.largest}M"] if self.largest else []),
            *(f"--exclude={pattern}" for pattern in patterns),
        ]


def back_up(restic: Restic, part: Part, identity: str, limits: Limits) -> str:
    """Add a folder to a set, and return a line about it. Raises BackupError."""
    # File systems round times of changes down, by less than a second.
    began = time.time() - 1
    done = restic.run(
        *("--json", "backup", "--no-scan", "--host", restic.cluster),
        *("--tag", ",".join(sets.tags(identity, part.name)), *limits.options(part.folder)),
        part.folder,
    )
    if done.code not in (0, UNREADABLE):
        raise BackupError(f"cannot back up {part.name}: {done.reason}")
    unread = _errors(
        done,
        "no set is complete until the file is repaired, or added to 'backup.exclude': cannot read "
        f"all files of {part.name}",
    )
    summary = done.messages("summary")[-1]
    files, size, added = (
        summary[key] for key in ("total_files_processed", "total_bytes_processed", "data_added")
    )
    sizes = f"{files:,} files, {size // _MIB:,} MiB, of which {added // _MIB:,} MiB were new"
    seen = inspect(part.real(restic), began, limits)
    return "; ".join((f"{part.name}: {sizes}", *unread.shown("were not readable"), *seen))


@dataclass
class Some:
    """Number of files, and some of their paths."""

    count: int = 0
    paths: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.paths) < _SHOWN:
            # A name may contain any character, and a log line ends at the first line break.
            self.paths.append(ascii(path)[1:-1])

    def shown(self, what: str) -> list[str]:
        """Return a text about the files, if there are any."""
        more = ", …" if self.count > len(self.paths) else ""
        text = f"files that {what}: {self.count:,} ({', '.join(self.paths)}{more})"
        return [text] if self.count else []


def _errors(done: Done, what: str) -> Some:
    """Return the files with errors that users cause. Raises BackupError after any other error, such
    as one of the storage. `what` begins the error's text."""
    found = Some()
    for error in done.messages("error"):
        text = str((error.get("error") or {}).get("message", ""))
        if not any(one in text for one in _BY_USERS):
            raise BackupError(f"{what}: {text}")
        found.add(str(error.get("item", text)))
    return found


def inspect(folder: Path, since: float, limits: Limits) -> list[str]:
    """Return texts about the regular files of a folder that changed at or after a time, and about
    those that are too large for the backup."""
    changes, large = Some(), Some()
    largest = limits.largest * _MIB if limits.largest else None
    for path, status in _files(folder, {one.removesuffix("/*") for one in limits.exclude}):
        if largest is not None and status.st_size > largest:
            large.add(path)
        elif status.st_ctime >= since:
            changes.add(path)
    return [
        *changes.shown("changed during the backup"),
        *large.shown("are larger than 'backup.largest_file'"),
    ]


def _files(folder: Path, skipped: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files of a folder, with paths below it."""
    for place, folders, names, opened in os.fwalk(folder, follow_symlinks=False):
        below = place[len(str(folder)) :]
        folders[:] = [name for name in folders if f"{below}/{name}" not in skipped]
        for name in names:
            try:
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
            except OSError:  # it was removed meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                yield f"{below}/{name}", status


def restore(restic: Restic, part: Part, wanted: str) -> str:
    """Restore a folder from a set if it is empty, and return a line about it.

    `wanted` is the id of a set, or `latest`. Raises BackupError. An interrupted restore continues
    in the next run, from the same set. Two runs on the same folder wait for each other.
    """
    folder = part.real(restic)
    with _alone(folder):
        begun = _begun(folder)
        if begun is None and _is_used(folder):
            return f"{part.name}: has files, so nothing is restored"
        restic.check_reachable()
        chosen = sets.choose(sets.sets(restic.snapshots()), begun or wanted)
        if part.name not in chosen.parts:
            return f"{part.name}: is not in the set '{chosen.id}', so nothing is restored"
        (folder / MARK).write_text(chosen.id)
        missing = _unpack(restic, part, chosen.parts[part.name].id)
        (folder / MARK).unlink()
    restored = f"{part.name}: restored from the set '{chosen.id}' of {chosen.time[:16]}Z"
    return "; ".join((restored, *missing.shown("could not be restored")))


def _unpack(restic: Restic, part: Part, snapshot: str) -> Some:
    """Copy a snapshot into the folder. Return the files that cannot exist, such as a link that was
    replaced while restic read it. Raises BackupError."""
    # The parent has only this folder in the snapshot. restic sets owner and mode of the folder
    # itself only if it restores the parent.
    parent = str(PurePosixPath(part.folder).parent)
    done = restic.run(
        # --sparse leaves holes in files where the backup has only zeros.
        *("--no-lock", "--json", "restore", "--sparse"),
        *(f"--exclude-xattr={name}" for name in _FOREIGN_ATTRIBUTES),
        *("--target", parent, f"{snapshot}:{parent}"),
    )
    missing = _errors(done, f"cannot restore {part.name}")
    if done.code != 0 and not missing.count:
        raise BackupError(f"cannot restore {part.name}: {done.reason}")
    return missing


def _begun(folder: Path) -> str | None:
    """Return the id of the set from which a restore has begun, or None.

    On some volumes, users may write into the folder itself, so only a file of root counts.
    """
    try:
        opened = os.open(folder / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(opened)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == 0
        return os.read(opened, status.st_size).decode() if is_ours else None
    finally:
        os.close(opened)


def _is_used(folder: Path) -> bool:
    return any(entry.name not in _NOT_OURS for entry in os.scandir(folder))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock for the folder. NFS locks only files that are open for writing."""
    lock = folder / _LOCK
    opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        if os.fstat(opened).st_uid != 0:
            raise BackupError(f"{lock}: is not a file of root; remove it")
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
        # Others that wait for this file will find that the restore has ended.
        lock.unlink(missing_ok=True)
    finally:
        os.close(opened)
