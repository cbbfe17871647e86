"""Back up a folder of the cluster, and restore it into an empty folder.

restic reads the jail while users change it, so this module lists the files that changed during the
run. Users may replace any directory by a symbolic link at any moment: restic is confined to the
folders (`agents.backup.restic`), and this module uses only open directories.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agents.backup import sets
from agents.backup.restic import UNREADABLE, BackupError, Done, Restic, count

MARK: Final = ".slurmstack-restore"
"""File in a folder that marks an incomplete restore."""
_LOCK: Final = f"{MARK}.lock"
_NOT_OURS: Final = frozenset({MARK, _LOCK, "lost+found", ".snapshot"})
"""Entries that an empty volume may have."""
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


def back_up(
    restic: Restic, part: Part, identity: str, exclude: Sequence[str], upload: int | None
) -> str:
    """Add a folder to a set, and return a line about it. Raises BackupError.

    `exclude` are patterns of restic; those with a leading slash are paths in the folder. `upload`
    is a limit in KiB/s.
    """
    # File systems round times of changes down, by less than a second.
    began = time.time() - 1
    limit = ("--limit-upload", str(upload)) if upload else ()
    patterns = [f"{part.folder}{one}" if one.startswith("/") else one for one in exclude]
    done = restic.run(
        *("--json", *limit, "backup", "--host", restic.cluster),
        *("--tag", ",".join(sets.tags(identity, part.name))),
        *(f"--exclude={pattern}" for pattern in patterns),
        part.folder,
    )
    if done.code not in (0, UNREADABLE):
        raise BackupError(f"cannot back up {part.name}: {done.reason}")
    _refuse_damage(part, done)
    summary = done.messages("summary")[-1]
    skipped = {one for one in exclude if one.startswith("/")}
    return f"{part.name}: {_sizes(summary)}{_changes(part.real(restic), began, skipped)}"


def _refuse_damage(part: Part, done: Done) -> None:
    """Raise BackupError if a file could not be read for another reason than its removal."""
    for error in done.messages("error"):
        text = str((error.get("error") or {}).get("message", ""))
        if "no such file or directory" not in text:
            raise BackupError(
                f"cannot read all files of {part.name}: {text}; the set has the other files"
            )


def _sizes(summary: dict[str, Any]) -> str:
    size, added = summary["total_bytes_processed"], summary["data_added"]
    return (
        f"{count(summary['total_files_processed'], 'file')}, {size // _MIB:,} MiB, of which "
        f"{added // _MIB:,} MiB were new"
    )


def _changes(folder: Path, since: float, skipped: Iterable[str]) -> str:
    """Return a text about the files that changed while restic read the folder."""
    found = changed(folder, since, skipped)
    if not found:
        return ""
    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    return f"; {count(len(found), 'file')} changed during the backup: {shown}"


def changed(folder: Path, since: float, skipped: Iterable[str] = ()) -> list[str]:
    """Return the paths of regular files that changed at or after a time, sorted."""
    found = []
    below = {path.rstrip("/") for path in skipped}
    for place, folders, names, opened in os.fwalk(folder, follow_symlinks=False):
        relative = place[len(str(folder)) :]
        folders[:] = [name for name in folders if f"{relative}/{name}" not in below]
        for name in names:
            try:
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if status.st_ctime >= since:
                found.append(f"{relative}/{name}")
    return sorted(found)


def restore(restic: Restic, part: Part, wanted: str) -> str:
    """Restore a folder from a set if it is empty, and return a line about it.

    `wanted` is the id of a set, or `latest`. Raises BackupError. An interrupted restore continues
    in the next run. Two runs on the same folder wait for each other.
    """
    folder = part.real(restic)
    with _alone(folder):
        mark = folder / MARK
        if not mark.exists() and _is_used(folder):
            return f"{part.name}: has files, so nothing is restored"
        restic.check_reachable()
        chosen = sets.choose(sets.sets(restic.snapshots()), wanted)
        if part.name not in chosen.parts:
            return f"{part.name}: is not in the set '{chosen.id}', so nothing is restored"
        mark.touch()
        snapshot = chosen.parts[part.name]
        # --sparse leaves holes in files where the backup has only zeros.
        done = restic.run(
            *("--no-lock", "--json", "restore", "--sparse"),
            *("--target", part.folder, f"{snapshot.id}:{part.folder}"),
        )
        errors = done.messages("error")
        if done.code != 0 or errors:
            texts = [str((one.get("error") or {}).get("message", "")) for one in errors]
            raise BackupError(f"cannot restore {part.name}: {(texts or [done.reason])[0]}")
        mark.unlink()
    return f"{part.name}: restored from the set '{chosen.id}' of {chosen.time[:16]}Z"


def _is_used(folder: Path) -> bool:
    return any(entry.name not in _NOT_OURS for entry in os.scandir(folder))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a lock for the folder. NFS locks only files that are open for writing."""
    lock = folder / _LOCK
    opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
        # Others that wait for this file will find that the restore has ended.
        lock.unlink(missing_ok=True)
    finally:
        os.close(opened)
