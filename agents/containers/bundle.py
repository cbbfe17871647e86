"""Read an OCI runtime bundle, the directory that `srun --container` names.

The container has the namespaces, devices and limits of its job. The bundle's own namespaces,
devices, limits and hooks are ignored.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agents.containers.errors import ImageError
from agents.containers.surroundings import Surroundings, directory_of, valid, variables_of

CONFIG: Final = "config.json"
_OWN: Final = ("/proc", "/sys", "/dev")
"""Directories that every container shares with its job. So a bundle's mounts below these
directories are ignored."""
_FLAGS: Final = ("ro", "nosuid", "nodev", "noexec", "bind")
_TMPFS: Final = ("size=", "mode=")
_SEPARATORS: Final = frozenset(":,\0")


@dataclass(frozen=True)
class Bundle:
    """The parts of a bundle that a container uses."""

    root: Path
    surroundings: Surroundings
    mounts: str
    """Mounts, in the syntax of `--container-mounts`."""
    read_only: bool


def read(path: Path) -> Bundle:
    """Read a bundle. Raises ImageError if its configuration is missing or unusable."""
    config = _config(path)
    root, process = _object(config, "root"), _object(config, "process")
    place = root.get("path")
    if not isinstance(place, str) or not (path / place).is_dir():
        raise ImageError(
            f"{path / CONFIG}: root.path: {place!r}: expected a directory: correct the path"
        )
    try:
        surroundings = Surroundings(
            variables=variables_of(process.get("env")), directory=directory_of(process.get("cwd"))
        )
        mounts = ",".join(_mounts(path, config.get("mounts")))
    except ImageError as error:
        raise ImageError(f"{path / CONFIG}: {error}") from None
    return Bundle(
        root=(path / place).resolve(),
        surroundings=surroundings,
        mounts=mounts,
        read_only=root.get("readonly") is True,
    )


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(path / CONFIG))
    except OSError as error:
        raise ImageError(
            f"{path / CONFIG}: {error.strerror}: expected an OCI bundle, which has this file: "
            "check the path of the bundle"
        ) from None
    except ValueError as error:
        raise ImageError(f"{path / CONFIG}: {error}: expected JSON: correct the file") from None
    return found if isinstance(found, dict) else {}


def _text(path: Path) -> bytes:
    # With O_NONBLOCK, opening a FIFO does not wait for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ImageError(
                f"{path}: expected a file, but it is a FIFO, a device or a directory: replace it "
                "by a regular file"
            )
        return file.read()


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def _mounts(path: Path, mounts: object) -> Iterator[str]:
    for mount in mounts if isinstance(mounts, list) else ():
        if isinstance(mount, dict) and (text := _mount(path, mount)) is not None:
            yield text


def _mount(path: Path, mount: Mapping[str, Any]) -> str | None:
    """Return a mount in the syntax of `--container-mounts`, or None if the mount is ignored."""
    target, source = str(mount.get("destination")), str(mount.get("source"))
    if target.startswith("/"):
        # normpath keeps two slashes at the beginning of a path.
        target = "/" + os.path.normpath(target).lstrip("/")
    options = [each for each in mount.get("options") or () if isinstance(each, str)]
    if any(target == own or target.startswith(f"{own}/") for own in _OWN):
        return None
    if mount.get("type") == "tmpfs":
        words = [each for each in options if each in _FLAGS or each.startswith(_TMPFS)]
        parts = ["tmpfs", target, "+".join(words)]
    elif {"bind", "rbind"} & {*options, mount.get("type")}:
        words = [each for each in options if each in _FLAGS]
        parts = [str(path / source), target, "+".join(words)]
    else:
        return None
    for part in parts[:2]:
        if _SEPARATORS & {*part}:
            raise ImageError(
                f"mounts: {part!r}: a path of a mount cannot contain"
                " ':', ',' or a null character; use another path"
            )
    return valid(":".join(parts))
