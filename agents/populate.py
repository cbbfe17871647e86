#!/usr/bin/python3 -B
"""Replace the jail's system files with a newer or older generation of these files.

The jail is the root file system that users' sessions and jobs share. This program runs as root in a
Job with the jail's image. A new generation is a copy of this image. All files of the image are
system files. Everything else in the jail belongs to users, and stays.

The Job first copies the whole generation to a folder on the jail's volume that only root can enter.
Then it renames each file to its final path. So running programs keep their files, no file is ever
missing or half written, and the volume cannot become full halfway.

The previous generation keeps a link to every file that was replaced or removed. So over NFS,
programs on other machines can continue to use these files.

After an interruption, the next run continues with a generation that was completely copied. It
removes a generation that was copied only in part.

Users write to the jail, and some may be root there, so all work uses `agents.tree`. The jail's
image contains only this file and agents/tree.py.
"""

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Final

from agents.tree import FOLDER, Tree, by_descriptor

STATE: Final = "var/lib/slurmstack"
MARKER: Final = f"{STATE}/jail-refresh"
"""File with the number of the generation. Workers wait for this file."""
GENERATIONS: Final = f"{STATE}/generations"
_SYSTEM: Final = f"{GENERATIONS}/system"
LOGS: Final = "var/log/slurmstack-checks"
"""Folder for the output of long checks' jobs."""
RESTORING: Final = ".slurmstack-restore"
"""File that exists while the jail is restored from a backup (agents/backup/files.py)."""
CHECKS_ID: Final = 64034
SLURM_ID: Final = 64030
MOUNT_POINTS: Final = ("dev", "proc", "sys")
MOUNTED_FILES: Final = ("etc/hostname", "etc/hosts", "etc/resolv.conf")
TERMINATION_LOG: Final = Path("/dev/termination-log")
REFUSED: Final = 3
"""Exit code of a Job that fails until the operator acts."""
MIB: Final = 1024 * 1024
_BLOCK = 4096
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class RefusedError(Exception):
    """The work is impossible until the operator acts. The message is one line for the operator."""


def free(fd: int) -> int:
    """Return the free bytes that the volume of an open directory reports."""
    volume = os.statvfs(fd)
    return volume.f_bavail * volume.f_frsize


@contextmanager
def room_for(what: str, folder: int, needed: int, state: str) -> Iterator[None]:
    """Raise RefusedError if fewer than `needed` bytes are free, or if the block fills the volume.

    `folder` is an open directory of the volume. `state` describes the jail after the failure.
    """
    found = free(folder)

    def full() -> RefusedError:
        return RefusedError(
            f"the jail's volume is full: {what} needs {max(1, -(-needed // MIB))} MiB, and "
            f"{found // MIB} MiB are free; delete files or raise 'jail.size', then deploy "
            f"again; {state}"
        )

    if found < needed:
        raise full()
    try:
        yield
    except OSError as error:
        # shutil raises one error with the texts of several, so compare texts as well as numbers.
        if any(error.errno == code or os.strerror(code) in str(error) for code in _NO_ROOM):
            raise full() from error
        raise


# --- The image -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """Files of this container's image, without the files that the container runtime has added."""

    root: Path = Path("/")

    def size(self) -> int:
        """Return the approximate number of bytes that the image needs on a volume."""
        device, seen, size = self.root.stat().st_dev, set[int](), 0
        folders = [self.root]
        while folders:
            for entry in os.scandir(folders.pop()):
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    # rsync copies the mount point, but not the mounted files.
                    folders += [Path(entry.path)] if status.st_dev == device else []
                    size += _BLOCK
                elif status.st_ino not in seen:
                    seen.add(status.st_ino)
                    size += max(_BLOCK, -(-status.st_size // _BLOCK) * _BLOCK)
        return size

    def unpack(self, target: int) -> None:
        """Copy the image to an empty open folder. Raises OSError."""
        excluded = (
            *("/mnt/jail", "/proc/*", "/sys/*", "/dev/*", "/run/secrets", "/tmp/*"),  # noqa: S108
            *("/.dockerenv", *(f"/{path}" for path in MOUNTED_FILES)),
        )
        done = subprocess.run(
            [
                *("rsync", "--archive", "--hard-links", "--one-file-system", "--numeric-ids"),
                # By default, a process of rsync sends its errors to rsync's other process, which
                # may already have ended, so the error would be lost.
                "--stderr=all",
                *("--no-devices", "--no-specials", *(f"--exclude={path}" for path in excluded)),
                *(f"{str(self.root).rstrip('/')}/", f"{by_descriptor(target)}/"),
            ],
            pass_fds=[target],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            matching = [code for code in _NO_ROOM if os.strerror(code) in done.stderr]
            said = (done.stderr.strip() or f"rsync: exit code {done.returncode}").splitlines()
            raise OSError((matching or [errno.EIO])[0], said[0])


# --- Generations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generation:
    """System files of the jail, before or after they are in use."""

    tree: Tree
    """Tree of the jail."""
    path: str

    @property
    def root(self) -> str:
        """Return the folder with the files. Paths below it equal paths in the jail."""
        return f"{self.path}/root"

    def number(self) -> int | None:
        return _read_number(self.tree, f"{self.path}/number")

    def paths(self) -> set[str]:
        """Return all paths.

        In the previous generation, they include users' files that a new system file has replaced.
        """
        return _read_paths(self.tree, f"{self.path}/paths")

    def system(self) -> set[str]:
        """Return the paths of the system files."""
        return _read_paths(self.tree, f"{self.path}/system")

    def describe(self, number: int, paths: Iterable[str], system: Iterable[str]) -> None:
        _write_paths(self.tree, f"{self.path}/paths", paths)
        _write_paths(self.tree, f"{self.path}/system", system)
        self.tree.write(f"{self.path}/number", f"{number}\n")


class Jail:
    """The jail's volume."""

    def __init__(self, root: Path, submounts: Iterable[str] = ()) -> None:
        self.tree = Tree(root)
        self.submounts = tuple(submounts)
        """Paths in the jail where nodes mount other volumes."""
        self.incoming = Generation(self.tree, f"{GENERATIONS}/incoming")
        """Complete generation, from which files move to their final paths."""
        self.before = Generation(self.tree, f"{GENERATIONS}/before")
        """Previous generation."""

    def number(self) -> int | None:
        return _read_number(self.tree, MARKER)

    def system(self) -> set[str]:
        """Return the paths of the current system files.

        In a jail that an old version of slurmstack made, the list is missing, so the result is
        empty.
        """
        return _read_paths(self.tree, _SYSTEM)

    def reach(self, wanted: int, image: Image) -> str:
        """Bring the jail to a generation, and return one line about the result.

        Raises RefusedError and OSError.
        """
        if self.tree.exists(RESTORING):
            raise RefusedError(
                "the restore of the jail was interrupted: set 'backup.restore' again, then deploy"
            )
        self._prepare()
        self._finish()
        current = self.number()
        if current == wanted:
            self.furnish()
            return f"the jail already has generation {wanted} ('jail.refresh'), so nothing changes"
        if current is None or wanted > current:
            self._stage(wanted, image)
        else:
            self._recall(wanted, current)
        self._finish()
        return (
            f"the jail now has generation {wanted} ('jail.refresh'); before this run: "
            f"{'none' if current is None else current}"
        )

    def furnish(self) -> None:
        """Make the mount points for nodes, and make root the owner of the jail's root.

        sshd's ChrootDirectory requires this owner, but a new volume may have another one.
        """
        for path in (*MOUNT_POINTS, *self.submounts):
            self._furnish_folder(path.lstrip("/"))
        for path in MOUNTED_FILES:
            self._furnish_file(path)
        with self.tree.opened("", FOLDER) as root:
            os.chown(root, 0, 0)
            os.fchmod(root, 0o755)
        self._make_logs()

    def _furnish_folder(self, path: str) -> None:
        parts = Path(path).parts
        for n in range(1, len(parts) + 1):
            place = "/".join(parts[:n])
            if self.tree.exists(place) and not self.tree.is_folder(place):
                raise RefusedError(
                    f"/{place} in the jail: must be a directory, because nodes mount a volume "
                    f"at /{path}; rename /{place} in the jail, then deploy again"
                )
        self.tree.make_folder(path)

    def _furnish_file(self, path: str) -> None:
        """Make an empty file if the file is missing.

        Replacing an existing file would remove the mount on it in all sessions.
        """
        self._furnish_folder(str(Path(path).parent))
        status = self.tree.status(path)
        if status is None:
            os.close(self.tree.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
        elif not stat.S_ISREG(status.st_mode):
            raise RefusedError(
                f"/{path} in the jail: must be a file, because nodes mount a file there; rename "
                f"/{path} in the jail, then deploy again"
            )

    def _make_logs(self) -> None:
        """Make the folder for the output of long checks.

        Only the user of the checks writes to it, and only Slurm's group reads it.
        """
        above = str(Path(LOGS).parent)
        in_the_way = self.tree.exists(LOGS) and not self.tree.is_folder(LOGS)
        if in_the_way or not self.tree.is_folder(above):
            return
        self.tree.make_folder(LOGS, 0o700)
        with self.tree.opened(LOGS, FOLDER) as logs:
            os.chown(logs, CHECKS_ID, SLURM_ID)
            os.fchmod(logs, 0o2750)

    def _prepare(self) -> None:
        self.tree.make_folder(STATE)
        self.tree.make_folder(GENERATIONS, 0o700)
        for unfinished in ("incoming.new", "before.new", "trash"):
            self.tree.remove(f"{GENERATIONS}/{unfinished}")

    @contextmanager
    def _room_for(
        self, what: str, needed: int, state: str = "this run did not change the jail"
    ) -> Iterator[None]:
        with self.tree.opened("", FOLDER) as root, room_for(what, root, needed, state):
            yield

    def _stage(self, number: int, image: Image) -> None:
        """Copy the image, and make the complete copy the incoming generation."""
        new = Generation(self.tree, f"{GENERATIONS}/incoming.new")
        try:
            with self._room_for(f"generation {number}", image.size()):
                self.tree.make_folder(new.root)
                with self.tree.opened(new.root, FOLDER) as root:
                    image.unpack(root)
                paths = set(self.tree.listing(new.root))
                new.describe(number, paths, paths)
        except BaseException:
            self.tree.remove(new.path)
            raise
        self._check(new)
        self.tree.rename(new.path, self.incoming.path)

    def _recall(self, number: int, current: int) -> None:
        """Make the previous generation the incoming one."""
        kept = self.before.number()
        if kept != number:
            earlier = "no earlier generation" if kept is None else f"only generation {kept}"
            others = "" if kept is None else f"{kept} to restore that generation, or to "
            raise RefusedError(
                f"jail.refresh: {number}: generation {number} is not available: the jail has "
                f"generation {current} and keeps {earlier}; set 'jail.refresh' to "
                f"{others}{current + 1} to unpack the image again"
            )
        self._check(self.before)
        self.tree.rename(self.before.path, self.incoming.path)

    def _check(self, coming: Generation) -> None:
        """Raise RefusedError if a new file would replace a folder with users' files."""
        system = self.system()
        for path in sorted(self.tree.listing(coming.root)):
            if self.tree.is_folder(f"{coming.root}/{path}") or not self.tree.is_folder(path):
                continue
            foreign = [name for name in self.tree.listing(path) if f"{path}/{name}" not in system]
            if foreign:
                raise RefusedError(
                    f"/{path}: the requested generation has a file here, but the jail has a "
                    f"directory with '{sorted(foreign)[0]}', which is not from a jail image; "
                    "in the jail, rename this directory, then deploy again"
                )

    def _finish(self) -> None:
        """Move the incoming generation's files to their final paths. Finishes interrupted moves."""
        coming = self.incoming
        number = coming.number()
        if number is None:
            return
        current = self.number()
        if current != number:
            if current is not None and self.before.number() != current:
                self._keep(current, coming.paths())
            with self._room_for(
                f"generation {number}",
                0,
                "until a deploy succeeds, the jail contains files of two generations",
            ):
                self._move(coming.root, "", self.system())
                self._clear(self.system() - coming.paths())
                self.furnish()
                _write_paths(self.tree, _SYSTEM, coming.system())
                self.tree.write(MARKER, f"{number}\n")
        self._throw_away(coming)

    def _throw_away(self, generation: Generation) -> None:
        """Rename a generation, then remove it, so that no incomplete generation can be left."""
        self.tree.rename(generation.path, f"{GENERATIONS}/trash")
        self.tree.remove(f"{GENERATIONS}/trash")

    def _keep(self, number: int, coming: set[str]) -> None:
        """Make the previous generation from all files that the new one replaces or removes."""
        new = Generation(self.tree, f"{GENERATIONS}/before.new")
        system = self.system()
        present = [path for path in sorted(system | coming) if self.tree.exists(path)]
        # Links to files need almost no space, but each folder needs a block.
        folders = sum(map(self.tree.is_folder, present))
        needed = folders * _BLOCK + sum(map(len, present)) * 4
        with self._room_for("the copy of the current generation", needed):
            self.tree.make_folder(new.root)
            for path in present:
                _preserve(self.tree, path, f"{new.root}/{path}")
            new.describe(number, present, system)
        if self.tree.exists(self.before.path):
            self._throw_away(self.before)
        self.tree.rename(new.path, self.before.path)

    def _move(self, source: str, target: str, system: set[str]) -> None:
        with self.tree.opened(source, FOLDER) as coming:
            entries = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir(coming)
            )
        for name, is_folder in entries:
            path, place = f"{source}/{name}", f"{target}/{name}".lstrip("/")
            if not is_folder:
                if self.tree.is_folder(place):
                    self._vacate(place, system)
                self.tree.rename(path, place)
                continue
            if not self.tree.is_folder(place):
                if self.tree.exists(place):
                    self.tree.unlink(place)
                self.tree.make_folder(place, 0o700)
            _copy_attributes(self.tree, path, place)
            self._move(path, place, system)

    def _vacate(self, folder: str, system: set[str]) -> None:
        """Remove a folder of system files that a file will replace."""
        self._clear({folder} | {name for name in system if name.startswith(f"{folder}/")})
        if self.tree.is_folder(folder):
            raise RefusedError(
                f"/{folder}: the requested generation has a file here, but the jail has a "
                "directory with files that are not from a jail image; in the jail, rename this "
                "directory, then deploy again"
            )

    def _clear(self, paths: Iterable[str]) -> None:
        """Remove files, and folders that are empty afterwards."""
        for path in sorted(paths, reverse=True):
            if not self.tree.exists(path):
                continue
            if not self.tree.is_folder(path):
                self.tree.unlink(path)
                continue
            try:
                self.tree.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    raise


# --- Files ---------------------------------------------------------------------------------------


def _copy_attributes(tree: Tree, source: str, target: str) -> None:
    """Copy owner and mode of one folder to another."""
    with tree.opened(source, FOLDER) as given, tree.opened(target, FOLDER) as folder:
        status = os.fstat(given)
        os.chown(folder, status.st_uid, status.st_gid)
        os.fchmod(folder, stat.S_IMODE(status.st_mode))


def _preserve(tree: Tree, source: str, target: str) -> None:
    """Make a hard link to a file, or copy it if the volume does not support hard links."""
    status = tree.status(source)
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        tree.make_folder(target, 0o700)
        _copy_attributes(tree, source, target)
    elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
        try:
            tree.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _copy(tree, source, target, status)


def _copy(tree: Tree, source: str, target: str, status: os.stat_result) -> None:
    """Copy a file or a symbolic link, with its owner."""
    with tree.parent(source) as (folder, name), tree.parent(target) as (new_folder, new_name):
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=folder), new_name, dir_fd=new_folder)
            os.chown(
                new_name, status.st_uid, status.st_gid, dir_fd=new_folder, follow_symlinks=False
            )
            return
    created = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with tree.opened(source) as given, tree.opened(target, created, 0o600) as made:
        # Set the owner before the mode, because chown clears the set-user-ID bit.
        os.chown(made, status.st_uid, status.st_gid)
        shutil.copy2(by_descriptor(given), by_descriptor(made))


def _read_number(tree: Tree, path: str) -> int | None:
    try:
        return int(tree.read(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _write_paths(tree: Tree, path: str, paths: Iterable[str]) -> None:
    tree.write(path, "\0".join(sorted(paths)))


def _read_paths(tree: Tree, path: str) -> set[str]:
    try:
        return set(tree.read(path).split("\0")) - {""}
    except FileNotFoundError:
        return set()


# --- The Job -------------------------------------------------------------------------------------


@contextmanager
def alone(tree: Tree) -> Iterator[None]:
    """Hold the jail's lock. Waits at most ten minutes for the Job of an earlier deploy."""
    tree.make_folder(STATE)
    tree.make_folder(GENERATIONS, 0o700)
    with tree.opened(f"{GENERATIONS}/lock", os.O_WRONLY | os.O_CREAT, 0o600) as lock:
        deadline = time.monotonic() + 600
        while True:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RefusedError(
                        "another Job has been changing the jail for more than 600 s; wait "
                        "until that Job ends, then deploy again"
                    ) from None
                time.sleep(0.5)
            except OSError as error:
                print(
                    f"warning: the jail's volume does not support locks: {error}; let each "
                    "deploy end before you start the next deploy",
                    flush=True,
                )
                break
        yield


def job(what: str, work: Callable[[], str]) -> int:
    """Do a Job's work, and return its exit code. An error becomes the pod's termination message."""
    try:
        print(work(), flush=True)
    except (RefusedError, OSError) as error:
        message = str(error) if isinstance(error, RefusedError) else f"{what}: {error}"
        if isinstance(error, PermissionError):
            message += (
                "; root must be able to own files on the jail's volume: export an NFS share "
                "with the option no_root_squash"
            )
        print(f"error: {message}", file=sys.stderr, flush=True)
        try:
            TERMINATION_LOG.write_text(message)
        except OSError as failure:
            print(f"{TERMINATION_LOG}: {failure}", file=sys.stderr)
        return REFUSED if isinstance(error, RefusedError) else 1
    return 0


def main() -> int:
    root, wanted = Path("/mnt/jail"), int(os.environ["JAIL_REFRESH"])
    submounts = os.environ.get("JAIL_SUBMOUNTS", "").split()

    def work() -> str:
        jail = Jail(root, submounts)
        with alone(jail.tree):
            return jail.reach(wanted, Image())

    return job("cannot populate the jail", work)


if __name__ == "__main__":
    sys.exit(main())
