"""List the files from which each container image is built, and compute the image's tag.

A tag is a digest of the image's build context and of the tag of its parent image. So the tag is
known before the build, and is the same in every checkout. It changes only if an input of the build
changes. This module does not use Docker, because the Pulumi program calls `reference` in a preview.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "slurmstack"
TAG_LENGTH = 12
BUILT_TAGS = "images/tags.json"
"""File that contains the tag of each image. Only the Python package has this file; see `tag`."""
_MOMENT = "%Y%m%dT%H%M%SZ"
"""The format of snapshot.debian.org's timestamps."""

# Names of files that editors, interpreters, compilers and linters create. Build contexts leave them
# out.
JUNK_FOLDERS = ("__pycache__", ".*_cache", "*.egg-info")
JUNK_FILES = (
    *("*.py[co]", "*.so", "*.o", "*.a", "*.d", "*.gcda", "*.gcno"),
    *("*~", "#*#", ".#*", ".*.sw?", "*.orig", "*.rej", ".DS_Store"),
)


class ContextError(Exception):
    """An image is unknown, or a file of an image is missing or invalid. The message is one line."""


@dataclass(frozen=True)
class Image:
    """One image. Its build context contains the folder `images/<name>/` and the files of `extra`.

    `extra` lists paths of files and folders in the repository. The files have the same paths in the
    context. The last part of a path may be a glob pattern. The Dockerfile gets the full reference
    of the image `parent` as the build argument `BASE`.
    """

    name: str
    parent: str | None = None
    extra: tuple[str, ...] = ()


PLUGIN = ("spank/*.[ch8]", "spank/containers/*.[ch]", "spank/Makefile")
IMPORTER = ("agents/__init__.py", "agents/containers")
NODE = (
    *("agents/__init__.py", "agents/checks", "agents/drains.py", "agents/say.py"),
    *("agents/bpf.py", "agents/cgroups.py", "agents/confine.py", "agents/cpus.py"),
    *("agents/gpus.py", "agents/keep_slurmd.py", "agents/mounts.py", "agents/node.py"),
    *("agents/tree.py", "agents/bridge/__init__.py", "agents/bridge/proof.py"),
    "agents/bridge/wait.py",
)
SESSIONS = tuple(
    f"agents/{name}.py" for name in ("__init__", "confine", "homes", "mounts", "populate", "tree")
)
IMAGES: Mapping[str, Image] = {
    image.name: image
    for image in (
        Image("debian"),
        Image("base", parent="debian", extra=(*PLUGIN, *IMPORTER)),
        # List this image before the other children of `base`, because its build takes longest.
        Image("jail", parent="base", extra=("agents/populate.py", "agents/tree.py")),
        Image("controller", parent="base"),
        Image("worker", parent="base", extra=NODE),
        Image("login", parent="base", extra=SESSIONS),
        Image("directory", parent="base"),
        Image("accounting", parent="base"),
        Image("backup", parent="debian", extra=("agents/__init__.py", "agents/backup")),
        Image("monitoring", parent="debian", extra=("images/base/watch",)),
        Image("nfs", parent="debian"),
        Image("database", parent="debian"),
        Image("rest", parent="base"),
        Image("guard", parent="base"),
        Image("agents", parent="base", extra=("agents",)),
    )
}


def find(name: str) -> Image:
    """Return an image by its name. Raises ContextError with the valid names."""
    try:
        return IMAGES[name]
    except KeyError:
        raise ContextError(
            f"image {name!r}: there is no such image; expected one of {', '.join(sorted(IMAGES))}"
        ) from None


def lineage(name: str) -> list[str]:
    """Return the image and its ancestors in build order."""
    parent = find(name).parent
    return [*(lineage(parent) if parent else ()), name]


def context_files(name: str, root: Path = ROOT) -> dict[str, Path]:
    """Return the files of the image's build context, sorted by their names in the archive.

    Raises ContextError if the Dockerfile or a path of `extra` is missing, or if two files have the
    same name.
    """
    image = find(name)
    folder = root / "images" / name
    if not (folder / "Dockerfile").is_file():
        raise ContextError(
            f"image {name!r}: the file images/{name}/Dockerfile is missing; restore the file with "
            "git"
        )
    found = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    for pattern in image.extra:
        paths = [path for match in root.glob(pattern) for path in _files(match)]
        if not paths:
            raise ContextError(
                f"image {name!r}: no file of the project matches {pattern!r}; restore the files "
                "with git"
            )
        for path in paths:
            archive_name = path.relative_to(root).as_posix()
            if found.setdefault(archive_name, path) != path:
                raise ContextError(
                    f"image {name!r}: two files have the path {archive_name} in the build context; "
                    f"rename images/{name}/{archive_name}"
                )
    return dict(sorted(found.items()))


def is_executable(path: Path) -> bool:
    """Return whether the owner may execute the file. Git records no other permission."""
    return bool(path.stat().st_mode & 0o100)


def snapshot(root: Path = ROOT) -> datetime:
    """Return the time of the Debian snapshot that all images use. Raises ContextError."""
    path = root / "images/debian/snapshot"
    try:
        return datetime.strptime(path.read_text().strip(), _MOMENT).replace(tzinfo=UTC)
    except (OSError, ValueError) as error:
        raise ContextError(
            f"images/debian/snapshot: cannot read this file: {error}; run `make snapshot` to "
            "write a new file"
        ) from None


def tag(name: str, root: Path = ROOT) -> str:
    """Return the image's tag: twelve hexadecimal digits from its context and its parent's tag.

    The Python package does not contain the files of the images, so it cannot compute the tags.
    Instead, it contains the file `BUILT_TAGS`, which the build of the package has written.
    """
    if (root / BUILT_TAGS).exists():
        return str(json.loads((root / BUILT_TAGS).read_text())[name])
    parent = find(name).parent
    digest = sha256((tag(parent, root) if parent else "").encode())
    for archive_name, path in context_files(name, root).items():
        content = sha256(path.read_bytes()).hexdigest()
        mode = "x" if is_executable(path) else "-"
        digest.update(f"\0{archive_name}\0{mode}\0{content}".encode())
    return digest.hexdigest()[:TAG_LENGTH]


def reference(name: str, registry: str | None = None, root: Path = ROOT) -> str:
    """Return the image's full reference, for pods and registries."""
    prefix = f"{registry.rstrip('/')}/" if registry else ""
    return f"{prefix}{REPOSITORY}/{name}:{tag(name, root)}"


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or all files below a folder, in any order. Skip files of tools (JUNK_FILES)."""
    if path.is_dir():
        if not _is_junk(path.name, JUNK_FOLDERS):
            for child in path.iterdir():
                yield from _files(child)
    elif path.is_file() and not _is_junk(path.name, JUNK_FILES):
        yield path


def _is_junk(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
