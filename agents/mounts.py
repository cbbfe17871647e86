"""Mount files and directories of a pod in the jail, before sessions or jobs see the jail.

`python3 -m agents.mounts JAIL [--lay SOURCE=TARGET ...] [PATH | SOURCE=TARGET ...]` runs as root,
before sshd or slurmd starts. Kubernetes itself mounts nothing in the jail: users can make links in
the jail, and Kubernetes would follow these links in the pod's own root.

A missing TARGET is created. `--lay` is for optional files: if the mount fails, the pod continues.
"""

import argparse
import ctypes
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agents.tree import Tree, system_call

_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_MOUNT_SETATTR: Final = 442
"""Numbers of these system calls on every architecture, in Linux 5.12 and later."""
_AT_EMPTY_PATH: Final = 0x1000
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_BETWEEN_DESCRIPTORS: Final = 0x04 | 0x40  # MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH
_CLONE: Final = 1
_PRIVATE: Final = 1 << 18


class _MountAttributes(ctypes.Structure):
    """`struct mount_attr` of linux/mount.h."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def show(jail: Tree, source: str, target: str) -> None:
    """Mount a path of the pod, with all mounts below it, in the jail.

    Raises OSError, with ELOOP if the path of `target` contains a link.
    """
    tree = _copy(source)
    try:
        folder = stat.S_ISDIR(os.fstat(tree).st_mode)
        if not jail.exists(target):
            _make(jail, target, folder=folder)
        with jail.opened(target, os.O_PATH | (os.O_DIRECTORY if folder else 0)) as point:
            system_call(_MOVE_MOUNT, tree, b"", point, b"", _BETWEEN_DESCRIPTORS)
    finally:
        os.close(tree)


def _copy(source: str) -> int:
    """Return a detached copy of a path's mounts. Later mounts below the path do not appear in the
    copy."""
    flags = _CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    tree = system_call(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags)
    attributes = _MountAttributes(propagation=_PRIVATE)
    try:
        system_call(
            *(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE),
            *(ctypes.byref(attributes), ctypes.sizeof(attributes)),
        )
    except OSError:
        os.close(tree)
        raise
    return tree


def _make(jail: Tree, target: str, *, folder: bool) -> None:
    if folder:
        jail.make_folder(target)
    else:
        os.close(jail.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def _pair(shown: str) -> tuple[str, str]:
    source, _, target = shown.partition("=")
    return source, target or source


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="mounts")
    parser.add_argument("jail", type=Path)
    parser.add_argument("shown", nargs="*")
    parser.add_argument("--lay", action="append", default=[])
    given = parser.parse_args(arguments)
    jail = Tree(given.jail)
    for source, target in map(_pair, given.shown):
        try:
            show(jail, source, target)
        except OSError as error:
            kind = "directory" if Path(source).is_dir() else "file"
            print(
                f"cannot mount {source} at {target} in the jail: {error.strerror}; make "
                f"{target} in the jail a {kind}, without symbolic links in its path",
                file=sys.stderr,
            )
            return 1
    for source, target in map(_pair, given.lay):
        try:
            show(jail, source, target)
        except OSError as error:
            print(
                f"starting without {target} in the jail, because {source} cannot be mounted "
                f"there: {error.strerror}; correct this path in the jail, then restart the pod",
                file=sys.stderr,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
