"""Work as root in a directory that users write to, without following their links out of it.

A user can replace a directory with a symbolic link at any moment. openat2(2), in Linux 5.6 and
later, opens a path without following links, or follows only links that stay in the tree. All later
calls use names relative to directories that openat2 opened, so these calls do not follow a link
that a user makes later.
"""

import ctypes
import errno
import os
import shutil
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_OPENAT2: Final = 437
"""Number of the system call on every architecture."""
_NO_SYMLINKS: Final = 0x04
_IN_ROOT: Final = 0x10
_ATTEMPTS: Final = 100
"""Attempts to open a path. openat2 fails with EAGAIN if a directory is renamed meanwhile."""
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

_libc = ctypes.CDLL(None, use_errno=True)


def system_call(number: int, *arguments: object) -> int:
    """Make a system call that has no function in libc. Raises OSError."""
    # Pass integers as wide as registers, because the upper bits of narrower ones are undefined.
    wide = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    found: int = _libc.syscall(ctypes.c_long(number), *wide)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


class _OpenHow(ctypes.Structure):
    """`struct open_how` of linux/openat2.h."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Tree:
    """An open directory. All paths are relative to this directory, even with a leading slash.

    All methods raise OSError, with ELOOP if the path contains a symbolic link.
    """

    def __init__(self, root: Path) -> None:
        """Open the directory at `root`.

        Users other than root must not be able to change this path.
        """
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._root)

    def open(
        self, path: str, flags: int = os.O_RDONLY, mode: int = 0, *, links: bool = False
    ) -> int:
        """Open a path, and return its descriptor.

        With `links`, symbolic links are followed as if the tree were the root directory.
        """
        how = _OpenHow(flags | os.O_CLOEXEC, mode, _IN_ROOT | (0 if links else _NO_SYMLINKS))
        name = os.fsencode(path.lstrip("/") or ".")
        for left in reversed(range(_ATTEMPTS)):
            try:
                return system_call(
                    _OPENAT2, self._root, name, ctypes.byref(how), ctypes.sizeof(how)
                )
            except OSError as error:
                if error.errno != errno.EAGAIN or not left:
                    raise OSError(error.errno, error.strerror, path) from None
        raise AssertionError

    @contextmanager
    def opened(
        self, path: str, flags: int = os.O_RDONLY, mode: int = 0, *, links: bool = False
    ) -> Iterator[int]:
        """Open a path like `open`, and close the descriptor at the end."""
        fd = self.open(path, flags, mode, links=links)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def parent(self, path: str, *, links: bool = False) -> Iterator[tuple[int, str]]:
        """Provide a descriptor of the path's parent directory, and the last name of the path."""
        folder, _, name = path.rstrip("/").rpartition("/")
        with self.opened(folder, FOLDER, links=links) as fd:
            yield fd, name

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of a path, or of the link itself if the path is a link.

        Returns None if the path is missing or below a link.
        """
        try:
            with self.parent(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise

    def exists(self, path: str) -> bool:
        return self.status(path) is not None

    def is_folder(self, path: str) -> bool:
        status = self.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def listing(self, path: str) -> Iterator[str]:
        """Yield the paths of all files and folders below a folder, relative to this folder."""
        with self.opened(path, FOLDER) as top:
            for folder, folders, files, _ in os.fwalk(".", dir_fd=top):
                prefix = folder.removeprefix(".").removeprefix("/")
                for name in (*folders, *files):
                    yield f"{prefix}/{name}" if prefix else name

    def make_folder(self, path: str, mode: int = 0o755) -> None:
        """Make a folder if it is missing. Missing parent folders get mode 0755."""
        parts = Path(path.lstrip("/")).parts
        for n in range(1, len(parts) + 1):
            above = "/".join(parts[:n])
            if not self.is_folder(above):
                with self.parent(above) as (folder, name):
                    os.mkdir(name, mode if n == len(parts) else 0o755, dir_fd=folder)

    def rename(self, path: str, new: str) -> None:
        with self.parent(path) as (folder, name), self.parent(new) as (new_folder, new_name):
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    def link(self, path: str, new: str) -> None:
        """Make a hard link to a file or to a symbolic link."""
        with self.parent(path) as (folder, name), self.parent(new) as (new_folder, new_name):
            os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        with self.parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def rmdir(self, path: str) -> None:
        with self.parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its contents, if it exists."""
        if self.is_folder(path):
            with self.parent(path) as (folder, name):
                shutil.rmtree(name, dir_fd=folder)
        elif self.exists(path):
            self.unlink(path)

    def read(self, path: str) -> str:
        with os.fdopen(self.open(path), errors="surrogateescape") as file:
            return file.read()

    def write(self, path: str, text: str) -> None:
        """Write a file. The file gets its name only after it is complete and on the disk."""
        new = f"{path}.new"
        fd = self.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        with os.fdopen(fd, "w", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self.rename(new, path)


def by_descriptor(fd: int) -> str:
    """Return a path to an open descriptor, for functions that need a path (see proc_pid_fd(5))."""
    return f"/proc/self/fd/{fd}"
