#!/usr/bin/python3
"""Brings the system files of the jail to a generation, and keeps the one before.

Runs as root in a Job of the jail's image, which is what a new generation is unpacked from. All that
the image has are system files; whatever else is in the jail is the users', and stays.

A generation is first laid out whole beside the jail, on its volume, where only root comes. Then
each of its files takes its place by a rename: running programs keep theirs, and nobody finds a file
missing or half written, or the volume full in the middle. What this replaces or removes has another
link in the generation before; so over NFS a program of another machine goes on with it as well. Of
what was begun when it was cut short, the next run finishes what was laid out whole, and throws away
what was not.

It stands alone: the jail's image has this one file of the project.
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

STATE: Final = "var/lib/slurmstack"
MARKER: Final = f"{STATE}/jail-refresh"
"""Holds the number of the generation, once the jail has one: workers wait for it."""
GENERATIONS: Final = f"{STATE}/generations"
LOGS: Final = "var/log/slurmstack-checks"
"""Where the jobs of long checks have their output."""
CHECKS_ID: Final = 64034
SLURM_ID: Final = 64030
MOUNT_POINTS: Final = ("dev", "proc", "sys")
MOUNTED_FILES: Final = ("etc/hostname", "etc/hosts", "etc/resolv.conf")
TERMINATION_LOG: Final = Path("/dev/termination-log")
REFUSED: Final = 3
"""Exit code of a Job that would fail again as long as nobody does anything."""
MIB: Final = 1024 * 1024
_BLOCK = 4096
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class RefusedError(Exception):
    """It cannot be done; one line for the operator."""


def free(path: Path) -> int:
    """Bytes that are free on the volume of a path, as far as it knows."""
    volume = os.statvfs(path)
    return volume.f_bavail * volume.f_frsize


@contextmanager
def room_for(what: str, root: Path, needed: int, state: str) -> Iterator[None]:
    """Refuses where `needed` bytes are not free, or turn out not to be.

    `state` says how things are then.
    """
    found = free(root)

    def full() -> RefusedError:
        return RefusedError(
            f"the jail's volume is full: {what} needs {max(1, -(-needed // MIB))} MiB, and "
            f"{found // MIB} MiB are free; make room or raise jail.size, then deploy again; {state}"
        )

    if found < needed:
        raise full()
    try:
        yield
    except OSError as error:
        # shutil gathers errors, of which only the text is left.
        if any(error.errno == code or os.strerror(code) in str(error) for code in _NO_ROOM):
            raise full() from error
        raise


# --- The image -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """The files of the container that this runs in, but for what its runtime has put there."""

    root: Path = Path("/")

    def size(self) -> int:
        """Bytes that they take on a volume, about."""
        device, seen, size = self.root.stat().st_dev, set[int](), 0
        folders = [self.root]
        while folders:
            for entry in os.scandir(folders.pop()):
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    # Of a mount only the place is copied.
                    folders += [Path(entry.path)] if status.st_dev == device else []
                    size += _BLOCK
                elif status.st_ino not in seen:
                    seen.add(status.st_ino)
                    size += max(_BLOCK, -(-status.st_size // _BLOCK) * _BLOCK)
        return size

    def unpack(self, target: Path) -> None:
        """Copies them to an empty folder. Raises OSError."""
        excluded = (
            *("/mnt/jail", "/proc/*", "/sys/*", "/dev/*", "/run/secrets", "/tmp/*"),  # noqa: S108
            *("/.dockerenv", *(f"/{path}" for path in MOUNTED_FILES)),
        )
        done = subprocess.run(
            [
                *("rsync", "--archive", "--hard-links", "--one-file-system", "--numeric-ids"),
                # Else a process that fails says why by way of another, which may be gone by then.
                "--stderr=all",
                *("--no-devices", "--no-specials", *(f"--exclude={path}" for path in excluded)),
                *(f"{str(self.root).rstrip('/')}/", f"{target}/"),
            ],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            known = [code for code in _NO_ROOM if os.strerror(code) in done.stderr]
            said = (done.stderr.strip() or f"rsync ended with {done.returncode}").splitlines()
            raise OSError((known or [errno.EIO])[0], said[0])


# --- Generations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generation:
    """System files that are, or were, to be in the jail."""

    path: Path

    @property
    def root(self) -> Path:
        """Its files, each at its place below the jail."""
        return self.path / "root"

    def number(self) -> int | None:
        return _read_number(self.path / "number")

    def paths(self) -> set[str]:
        """Of its files and folders; some of a generation before may be what a user had there."""
        return _read_paths(self.path / "paths")

    def system(self) -> set[str]:
        """Those of them that are system files."""
        return _read_paths(self.path / "system")

    def describe(self, number: int, paths: Iterable[str], system: Iterable[str]) -> None:
        _write_paths(self.path / "paths", paths)
        _write_paths(self.path / "system", system)
        _write(self.path / "number", f"{number}\n")


class Jail:
    """The jail's volume."""

    def __init__(self, root: Path, submounts: Iterable[str] = ()) -> None:
        self.root = root
        self.submounts = tuple(submounts)
        """Paths in the jail where nodes mount other volumes."""
        self.generations = root / GENERATIONS
        self.incoming = Generation(self.generations / "incoming")
        """Laid out whole, and on its way into its places."""
        self.before = Generation(self.generations / "before")
        self._system = self.generations / "system"

    def number(self) -> int | None:
        return _read_number(self.root / MARKER)

    def system(self) -> set[str]:
        """Paths of the system files of its generation; of an older jail nobody knows them."""
        return _read_paths(self._system)

    def reach(self, wanted: int, image: Image) -> str:
        """Brings the jail to a generation, and says so in a line.

        Raises RefusedError and OSError.
        """
        self._prepare()
        self._finish()
        current = self.number()
        if current == wanted:
            self.furnish()
            return f"the jail is populated (refresh {wanted}); nothing to do"
        if current is None or wanted > current:
            self._stage(wanted, image)
        else:
            self._recall(wanted, current)
        self._finish()
        return f"the jail is populated (refresh {wanted}; before: {current})"

    def furnish(self) -> None:
        """Makes what nodes mount over. A root for ChrootDirectory must be root's, whatever the
        volume's maker thought."""
        for path in (*MOUNT_POINTS, *self.submounts):
            place = self.root
            for part in Path(path.lstrip("/")).parts:
                place /= part
                if not _is_folder(place):
                    if os.path.lexists(place):
                        raise RefusedError(
                            f"{place.relative_to(self.root)} in the jail is no directory, and /"
                            f"{path.lstrip('/')} is to be mounted there; move it away"
                        )
                    place.mkdir(mode=0o755)
        (self.root / "etc").mkdir(mode=0o755, exist_ok=True)
        # A file that took the place of one of these would take the mount off it, wherever somebody
        # is logged in.
        for path in MOUNTED_FILES:
            (self.root / path).touch()
        os.chown(self.root, 0, 0)
        self.root.chmod(0o755)
        self._make_logs()

    def _make_logs(self) -> None:
        """Makes the folder for the output of long checks, which their user alone writes to, and
        slurm's group reads."""
        logs = self.root / LOGS
        if self._is_reached(LOGS):
            logs.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chown(logs, CHECKS_ID, SLURM_ID)
            logs.chmod(0o2750)

    def _prepare(self) -> None:
        (self.root / STATE).mkdir(mode=0o755, parents=True, exist_ok=True)
        self.generations.mkdir(mode=0o700, exist_ok=True)
        for unfinished in ("incoming.new", "before.new", "trash"):
            _remove_tree(self.generations / unfinished)

    def _stage(self, number: int, image: Image) -> None:
        """Lays out the image."""
        new = Generation(self.generations / "incoming.new")
        unchanged = "the jail is as it was"
        try:
            with room_for(f"generation {number}", self.root, image.size(), unchanged):
                new.root.mkdir(parents=True)
                image.unpack(new.root)
                paths = set(_listing(new.root))
                new.describe(number, paths, paths)
        except BaseException:
            _remove_tree(new.path)
            raise
        self._check(new)
        new.path.rename(self.incoming.path)

    def _recall(self, number: int, current: int) -> None:
        """Takes the generation before for the next."""
        kept = self.before.number()
        if kept != number:
            others = f"{kept} to go back, or to " if kept is not None else ""
            raise RefusedError(
                f"jail.refresh: {number}: the jail is at {current} and keeps "
                f"{kept if kept is not None else 'none'} of those before; set it to {others}"
                f"{current + 1} to unpack the image again"
            )
        self._check(self.before)
        self.before.path.rename(self.incoming.path)

    def _check(self, coming: Generation) -> None:
        """Refuses files that would take the place of a folder in which users have something."""
        system = self.system()
        for path in sorted(_listing(coming.root)):
            place = self.root / path
            if (
                _is_folder(coming.root / path)
                or not self._is_reached(path)
                or not _is_folder(place)
            ):
                continue
            foreign = [name for name in _listing(place) if f"{path}/{name}" not in system]
            if foreign:
                raise RefusedError(
                    f"/{path} is to be a file, and the jail has a directory there with "
                    f"'{sorted(foreign)[0]}' in it; move that away"
                )

    def _finish(self) -> None:
        """Puts what is laid out whole into its places, or finishes that."""
        coming = self.incoming
        number = coming.number()
        if number is None:
            return
        current = self.number()
        if current != number:
            if current is not None and self.before.number() != current:
                self._keep(current, coming.paths())
            with room_for(f"generation {number}", self.root, 0, "the next run goes on from here"):
                self._move(coming.root, self.root, self.system())
                self._clear(self.system() - coming.paths())
                self.furnish()
                _write_paths(self._system, coming.system())
                _write(self.root / MARKER, f"{number}\n")
        coming.path.rename(self.generations / "trash")
        _remove_tree(self.generations / "trash")

    def _keep(self, number: int, coming: set[str]) -> None:
        """Makes the generation before of all that is to be replaced or removed."""
        new = Generation(self.generations / "before.new")
        system = self.system()
        present = [path for path in sorted(system | coming) if self._is_here(path)]
        # Links to files take next to nothing, folders do.
        folders = sum(_is_folder(self.root / path) for path in present)
        needed = folders * _BLOCK + sum(map(len, present)) * 4
        with room_for("the generation before", self.root, needed, "the jail is as it was"):
            new.root.mkdir(parents=True)
            for path in present:
                _preserve(self.root / path, new.root / path)
            new.describe(number, present, system)
        if self.before.path.exists():
            self.before.path.rename(self.generations / "trash")
            _remove_tree(self.generations / "trash")
        new.path.rename(self.before.path)

    def _move(self, source: Path, target: Path, system: set[str]) -> None:
        for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
            place = target / entry.name
            if not entry.is_dir(follow_symlinks=False):
                if _is_folder(place):
                    self._vacate(place, system)
                Path(entry.path).rename(place)
                continue
            if not _is_folder(place):
                place.unlink(missing_ok=True)
                place.mkdir(mode=0o700)
            _copy_attributes(Path(entry.path), place)
            self._move(Path(entry.path), place, system)

    def _vacate(self, folder: Path, system: set[str]) -> None:
        """Removes a folder that held system files, for a file that is to be there instead."""
        path = str(folder.relative_to(self.root))
        self._clear({path} | {name for name in system if name.startswith(f"{path}/")})
        if _is_folder(folder):
            raise RefusedError(f"/{path} is to be a file, and is a directory in use; move it away")

    def _clear(self, paths: Iterable[str]) -> None:
        """Removes files, and folders in which nothing else is."""
        for path in sorted(paths, reverse=True):
            if not self._is_here(path):
                continue
            place = self.root / path
            if not _is_folder(place):
                place.unlink()
                continue
            try:
                place.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    raise

    def _is_here(self, path: str) -> bool:
        return self._is_reached(path) and os.path.lexists(self.root / path)

    def _is_reached(self, path: str) -> bool:
        """Whether no symbolic link leads to it: by one it could be anything, anywhere."""
        parents = [parent for parent in Path(path).parents if parent != Path()]
        return all(_is_folder(self.root / parent) for parent in parents)


# --- Files ---------------------------------------------------------------------------------------


def _is_folder(path: Path) -> bool:
    """Whether it is a directory, and no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _listing(root: Path, prefix: str = "") -> Iterator[str]:
    """Paths of all that is below a folder, relative to it."""
    for entry in os.scandir(root):
        yield f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _listing(Path(entry.path), f"{prefix}{entry.name}/")


def _copy_attributes(source: Path, target: Path) -> None:
    status = source.lstat()
    os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        target.chmod(stat.S_IMODE(status.st_mode))


def _preserve(source: Path, target: Path) -> None:
    """Another link to a file, or a copy where the volume has none."""
    mode = source.lstat().st_mode
    if stat.S_ISDIR(mode):
        target.mkdir(mode=0o700)
        _copy_attributes(source, target)
    elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copy2(source, target, follow_symlinks=False)
            _copy_attributes(source, target)


def _remove_tree(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def _write(path: Path, text: str) -> None:
    """Writes a file, which appears when it is whole."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _write_paths(path: Path, paths: Iterable[str]) -> None:
    _write(path, "\0".join(sorted(paths)))


def _read_paths(path: Path) -> set[str]:
    try:
        return set(path.read_text(errors="surrogateescape").split("\0")) - {""}
    except FileNotFoundError:
        return set()


# --- The Job -------------------------------------------------------------------------------------


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Waits for the Job of the deploy before, which may be about to end: ten minutes at most."""
    folder = root / GENERATIONS
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        deadline = time.monotonic() + 600
        while True:
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RefusedError(
                        "another Job works on the jail; deploy again when it ends"
                    ) from None
                time.sleep(0.5)
            except OSError as error:
                print(f"warning: the volume has no locks: {error}", flush=True)
                break
        yield


def job(what: str, work: Callable[[], str]) -> int:
    """Does a Job's work: its exit code. Why it failed is its termination message, in one line."""
    try:
        print(work(), flush=True)
    except (RefusedError, OSError) as error:
        message = str(error) if isinstance(error, RefusedError) else f"{what}: {error}"
        if isinstance(error, PermissionError):
            message += "; root must own files there: of an NFS export, by no_root_squash"
        print(f"error: {message}", file=sys.stderr, flush=True)
        try:
            TERMINATION_LOG.write_text(message)
        except OSError as untold:
            print(f"{TERMINATION_LOG}: {untold}", file=sys.stderr)
        return REFUSED if isinstance(error, RefusedError) else 1
    return 0


def main() -> int:
    root, wanted = Path("/mnt/jail"), int(os.environ["JAIL_REFRESH"])
    submounts = os.environ.get("JAIL_SUBMOUNTS", "").split()

    def work() -> str:
        with alone(root):
            return Jail(root, submounts).reach(wanted, Image())

    return job("the jail cannot be populated", work)


if __name__ == "__main__":
    sys.exit(main())
