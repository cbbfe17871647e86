"""The directory that stores the container images of a user, with these files:

    images/<key>/root          files of an image: the lower layer of its containers' overlays
    images/<key>/lock          locked while a container runs; its mtime is the last use
    images/<key>/size          size of the files in bytes
    images/<key>/blobs         digests of the image's layers
    references/<reference>     key of the image; the file's mtime is the time when the key expires
    blobs/sha256/<digest>      compressed layers for all images, or links to the site's layers
    locks/<key>                locked while a step imports the image; other steps then wait
    temporary/                 unfinished imports

A key is a hash that identifies an image. A reference is the name of an image that the user wrote,
such as ubuntu:24.04. The site's layers are layers that all users share.

An import has a temporary name until it is complete, so a killed import leaves no damaged image.
Locks use flock(2), because such a lock also works between nodes on shared file systems, and the
kernel releases it when the process ends.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from agents.containers.errors import ImageError
from agents.containers.watch import tell

_PRIVATE: Final = 0o700
_OTHERS_WRITE: Final = 0o022
_POLL: Final = 0.2
"""Seconds between two attempts to take a lock."""
_WAIT_UNTIL_TOLD: Final = 5.0
"""Seconds after which a user who waits for a lock gets a message."""
_ABANDONED: Final = 86_400
"""Age in seconds. The cache removes unfinished imports and unused layers that are older."""
MOST_FILES: Final = 10_000_000
"""Maximum number of files and directories of an image. Large images have a million."""
_SET_ID: Final = 0o6000
_OWNER_ALL: Final = 0o700


def _between(path: Path, above: str | None) -> Iterator[Path]:
    """Yield the directories between `above` and `path`, without these two."""
    if above is not None:
        yield from (each for each in path.parents if Path(above) in each.parents)


def _check_owner(folder: Path) -> None:
    """Raise ImageError if another user could have put files into a directory.

    Another user may create the directory, or a link with its name, before the user's first job.
    """
    link, status, user = folder.lstat(), folder.stat(), os.geteuid()
    for found in (link, status):
        if found.st_uid != user:
            raise ImageError(
                f"cannot use the image cache {folder}: it belongs to the user {found.st_uid}, "
                f"expected {user}: ask the cluster operator to create it for you"
            )
    if status.st_mode & _OTHERS_WRITE:
        raise ImageError(
            f"cannot use the image cache {folder}: other users can write to it: remove it, or "
            f"check its files and run chmod 700 {folder}"
        )


class Cache:
    """Cache of a user, created if it is missing.

    Only the user can read the cache. Otherwise other users could run set-user-ID programs of an
    image with this user's rights.
    """

    def __init__(self, path: Path, above: str | None = None) -> None:
        """Raises ImageError if the directory is unusable, or if other users could change it.

        `above` is the directory that contains all users' caches, or None for a cache in the home
        directory.
        """
        self.path = path
        try:
            path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            for folder in (path, *_between(path, above)):
                _check_owner(folder)
            # A container maps only the user's primary group, so all files must have this group.
            # Also clear the set-group-ID bit, with which new files would get the directory's group.
            path.chmod(_PRIVATE)
            os.chown(path, -1, os.getgid())
            for name in ("images", "references", "blobs/sha256", "locks", "temporary"):
                (path / name).mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        except OSError as error:
            raise ImageError(
                f"cannot use the image cache {path}: {error.strerror}: check the owner of this "
                "directory, and the free space of its disk"
            ) from None

    # --- Images ----------------------------------------------------------------------------------

    def image(self, key: str) -> Path | None:
        """Return the directory of a cached image, or None."""
        path = self.path / "images" / key
        return path if path.is_dir() else None

    def record(self, reference: str, key: str, fresh_for: int) -> None:
        """Record which image a reference names. The record expires after `fresh_for` seconds."""
        path = self._reference(reference)
        if path is None:
            return
        temporary = self.path / "temporary" / f"{os.getpid()}-{time.monotonic_ns()}"
        until = time.time() + fresh_for
        try:
            temporary.write_text(key)
            os.utime(temporary, (until, until))
            temporary.rename(path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise

    def recorded(self, reference: str) -> Path | None:
        """Return the recorded image of a reference, or None. Also uses an expired record."""
        path = self._reference(reference)
        if path is None:
            return None
        try:
            return self.image(path.read_text())
        except FileNotFoundError:
            return None

    def _reference(self, reference: str) -> Path | None:
        """Return the path of a reference's record, or None if the file's name is too long.

        `spank/containers/image.c` uses the same path.
        """
        name = urllib.parse.quote(reference, safe="").replace("~", "%7E")
        return self.path / "references" / name if len(name) <= 255 else None

    # --- New images ------------------------------------------------------------------------------

    @contextmanager
    def locked(self, key: str, subject: str) -> Iterator[None]:
        """Hold the lock of an image, on all nodes that share the cache."""
        with (self.path / "locks" / key).open("w") as file:
            began, announced = time.monotonic(), False
            while not _try_lock(file.fileno()):
                if not announced and time.monotonic() - began > _WAIT_UNTIL_TOLD:
                    tell(f"{subject}: waiting until another step has imported this image")
                    announced = True
                time.sleep(_POLL)
            yield

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """Provide a directory for an unfinished import, and remove it at the end."""
        path = self.path / "temporary" / f"{os.uname().nodename}-{os.getpid()}-{time.time_ns()}"
        path.mkdir(mode=_PRIVATE)
        try:
            yield path
        finally:
            remove(path)

    def add(self, key: str, finished: Path) -> Path:
        """Turn a finished directory into the image of this key, unless the image exists."""
        path = self.path / "images" / key
        try:
            finished.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        return path

    @property
    def _blobs(self) -> Path:
        return self.path / "blobs/sha256"

    def blobs(self) -> set[str]:
        """Return the digests of the layers in the cache."""
        return {path.name for path in self._blobs.iterdir()}

    def size_of_new(self, image: Path, known: Collection[str]) -> int:
        """Return the bytes of an image's layers, except layers in `known` and the site's layers."""
        new = [self._blobs / name for name in _lines(image / "blobs") if name not in known]
        return sum(path.stat().st_size for path in new if path.is_file() and not path.is_symlink())

    def link(self, site: Path, digests: Iterable[str]) -> None:
        """Link to the site's layers, so that an import does not download them again.

        The site's directory need not be trusted, because umoci verifies each layer's digest when it
        unpacks the layer.
        """
        for digest in digests:
            mine, sites = self._blobs / digest, site / "sha256" / digest
            if sites.is_file() and not mine.exists():
                mine.unlink(missing_ok=True)
                with suppress(FileExistsError):
                    mine.symlink_to(sites)

    def remove_damaged(self, digests: Iterable[str]) -> bool:
        """Remove layers that do not match their digests. Return whether there were any."""
        damaged = [self._blobs / name for name in digests if not _is_intact(self._blobs / name)]
        for path in damaged:
            path.unlink(missing_ok=True)
        return bool(damaged)

    # --- Space -----------------------------------------------------------------------------------

    def shrink(self, limit: int, keep: Path | None = None) -> int:
        """Remove the least recently used images until at most `limit` bytes remain.

        Returns the number of removed bytes. Keeps `keep`, and images that a container uses.
        """
        sizes = {image: size_of(image) for image in sorted(self.images(), key=_last_use)}
        total = before = sum(sizes.values())
        for image, bytes_of_it in sizes.items():
            if total <= limit:
                break
            if image != keep and self.remove(image):
                total -= bytes_of_it
        self._remove_left_over()
        return before - total

    def images(self) -> list[Path]:
        """Return the directories of all images."""
        return [path for path in (self.path / "images").iterdir() if path.is_dir()]

    def remove(self, image: Path) -> bool:
        """Remove an image, unless a container uses it."""
        try:
            # Over NFS, an exclusive lock requires a descriptor that is open for writing.
            with (image / "lock").open("r+") as file:
                if not _try_lock(file.fileno()):
                    return False
                # Before this process took the lock, another process may have removed the image,
                # and a third process may have imported it again. Then keep the new image.
                if not os.path.samestat(os.fstat(file.fileno()), (image / "lock").stat()):
                    return False
                removed = self.path / "temporary" / f"removed-{image.name}-{time.time_ns()}"
                image.rename(removed)
                # A starting container may have opened the image already, and may wait for the lock.
                # Rename `root`, so that this container finds no files and imports the image again.
                with suppress(FileNotFoundError):
                    (removed / "root").rename(removed / "removed")
        except FileNotFoundError:
            return False
        remove(removed)
        return True

    def _remove_left_over(self) -> None:
        """Remove unused layers and unfinished imports that are older than `_ABANDONED`."""
        wanted = {name for image in self.images() for name in _lines(image / "blobs")}
        before = time.time() - _ABANDONED
        for blob in self._blobs.iterdir():
            with suppress(FileNotFoundError):
                if blob.name not in wanted and blob.lstat().st_mtime < before:
                    blob.unlink()
        for path in (self.path / "temporary").iterdir():
            # If one import cannot be removed, continue with the others.
            with suppress(OSError, RecursionError):
                if path.lstat().st_mtime < before:
                    remove(path)


def _is_intact(blob: Path) -> bool:
    try:
        # With O_NONBLOCK, opening a FIFO does not wait for a writer.
        with os.fdopen(os.open(blob, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return regular and hashlib.file_digest(file, "sha256").hexdigest() == blob.name
    except OSError:
        return False


def size_of(image: Path) -> int:
    """Return the recorded size of an image in bytes."""
    text = next(iter(_lines(image / "size")), "0")
    return int(text) if text.isdigit() else 0


def _last_use(image: Path) -> float:
    try:
        return (image / "lock").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ImageError(
            f"cannot lock the image cache: {error.strerror}: its file system must support flock(2) "
            "(Lustre does so only with the mount option flock): contact the cluster operator"
        ) from None
    return True


# --- Files of an image ---------------------------------------------------------------------------


def count_files(root: Path) -> int:
    """Count the files and directories in a tree. Stops soon after the count exceeds MOST_FILES."""
    total = 0
    for _, names, files in os.walk(root):
        total += len(names) + len(files)
        if total > MOST_FILES:
            break
    return total


def check_files(count: int, subject: str) -> None:
    """Raise ImageError if an image has too many files."""
    if count > MOST_FILES:
        raise ImageError(
            f"{subject}: the image has more than {MOST_FILES:,} files, which is the limit: "
            "use an image with fewer files"
        )


def settle(root: Path, subject: str = "image") -> int:
    """Adapt an image's files to a container that maps only one user. Return their size in bytes.

    - Gives the user full access to directories. Images expect root, which always has this access.
    - Clears set-user-ID and set-group-ID bits, which would give the user's rights to other users.
    - Gives all files to the user's primary group, because a container maps no other group.

    Raises ImageError if there are too many files.
    """
    group, total, count = os.getgid(), 0, 0
    root.chmod(root.stat().st_mode & ~_SET_ID | _OWNER_ALL)
    for folder, names, files in os.walk(root):
        count += len(names) + len(files)
        check_files(count, subject)
        for name in (*names, *files):
            # Path objects are slow for the hundred thousand files of an image.
            total += _settle_one(os.path.join(folder, name), group)  # noqa: PTH118
    return total


def _settle_one(path: str, group: int) -> int:
    status = os.lstat(path)
    if status.st_gid != group:
        os.chown(path, -1, group, follow_symlinks=False)
    mode = status.st_mode & ~_SET_ID
    if stat.S_ISDIR(mode):
        mode |= _OWNER_ALL
    if mode != status.st_mode and not stat.S_ISLNK(mode):
        Path(path).chmod(mode & 0o7777)
    return status.st_blocks * 512


def remove(path: Path) -> None:
    """Remove a tree, including directories without permissions."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        _remove_tree(path)
    except PermissionError:
        _permit(path)
        _remove_tree(path)


def _remove_tree(path: Path) -> None:
    def check(function: Callable[..., object], name: str, error: Sequence[Any]) -> None:
        # Another process may remove the same tree.
        if not isinstance(error[1], FileNotFoundError):
            raise error[1]

    # Python 3.12 renamed onerror to onexc, but the jail may have 3.11.
    shutil.rmtree(path, onerror=check)


def _permit(path: Path) -> None:
    """Give the user full access to the directories of a tree."""
    path.chmod(_OWNER_ALL)
    for folder, names, _ in os.walk(path):
        for each in (Path(folder, name) for name in names):
            if not each.is_symlink():
                each.chmod(_OWNER_ALL)
