"""The files of each image, and the tag that is derived from them.

A tag is a digest of the image's build context and of its parent's tag. So it is known before the
build, is the same in every checkout, and changes if and only if the build's input changes. Nothing
here requires Docker: the Pulumi program calls `reference` in a preview.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "slurmstack"
TAG_LENGTH = 12
_MOMENT = "%Y%m%dT%H%M%SZ"
"""The format of snapshot.debian.org's timestamps."""

# Files that editors, interpreters, compilers and linters leave behind.
JUNK_FOLDERS = ("__pycache__", ".*_cache", "*.egg-info")
JUNK_FILES = (
    *("*.py[co]", "*.so", "*.o", "*.a", "*.d", "*.gcda", "*.gcno"),
    *("*~", "#*#", ".#*", ".*.sw?", "*.orig", "*.rej", ".DS_Store"),
)


class ContextError(Exception):
    """An image is unknown, or its build context is incomplete. The message is one line."""


@dataclass(frozen=True)
class Image:
    """One image. Its context is the folder `images/<name>/`, with `extra` added.

    `extra` lists files and folders of the repository as paths from its root; the last part may be a
    glob pattern. They have the same paths in the context. `parent` is another image; the Dockerfile
    gets its full reference as the build argument `BASE`.
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
    "agents/tree.py",
)
SESSIONS = tuple(
    f"agents/{name}.py" for name in ("__init__", "confine", "homes", "mounts", "populate", "tree")
)
IMAGES: Mapping[str, Image] = {
    image.name: image
    for image in (
        Image("debian"),
        Image("base", parent="debian", extra=(*PLUGIN, *IMPORTER)),
        # First, because its build takes longest.
        Image("jail", parent="base", extra=("agents/populate.py", "agents/tree.py")),
        Image("controller", parent="base"),
        Image("worker", parent="base", extra=NODE),
        Image("login", parent="base", extra=SESSIONS),
        Image("directory", parent="base"),
        Image("accounting", parent="base"),
        Image("backup", parent="debian"),
        Image("monitoring", parent="debian", extra=("images/base/watch",)),
        Image("nfs", parent="debian"),
        Image("database", parent="debian"),
        Image("rest", parent="base"),
        Image("guard", parent="base"),
        Image("agents", parent="base", extra=("agents",)),
    )
}


def find(name: str) -> Image:
    """Return the image of that name. Raises ContextError with the valid names."""
    try:
        return IMAGES[name]
    except KeyError:
        raise ContextError(f"image {name!r}: expected one of {', '.join(sorted(IMAGES))}") from None


def lineage(name: str) -> list[str]:
    """Return the image and its ancestors, the oldest first, in build order."""
    parent = find(name).parent
    return [*(lineage(parent) if parent else ()), name]


def context_files(name: str, root: Path = ROOT) -> dict[str, Path]:
    """Return every file of the image's build context by its name in the archive, sorted by name.

    Raises ContextError if the Dockerfile or an extra path is missing, or if two files have the
    same name.
    """
    image = find(name)
    folder = root / "images" / name
    if not (folder / "Dockerfile").is_file():
        raise ContextError(f"image {name!r}: images/{name}/Dockerfile is missing; restore it")
    found = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    for pattern in image.extra:
        paths = [path for match in root.glob(pattern) for path in _files(match)]
        if not paths:
            raise ContextError(f"image {name!r}: {pattern} is missing; restore it for the build")
        for path in paths:
            archive_name = path.relative_to(root).as_posix()
            if found.setdefault(archive_name, path) != path:
                raise ContextError(
                    f"image {name!r}: two files claim {archive_name} in its build context; "
                    f"rename images/{name}/{archive_name}"
                )
    return dict(sorted(found.items()))


def is_executable(path: Path) -> bool:
    """Return whether the owner may execute the file, the only permission bit that git records."""
    return bool(path.stat().st_mode & 0o100)


def snapshot(root: Path = ROOT) -> datetime:
    """Return the moment of Debian's archive that all images use. Raises ContextError."""
    path = root / "images/debian/snapshot"
    try:
        return datetime.strptime(path.read_text().strip(), _MOMENT).replace(tzinfo=UTC)
    except (OSError, ValueError) as error:
        raise ContextError(
            f"images/debian/snapshot: {error}; run `make snapshot` to write a new one"
        ) from None


def tag(name: str, root: Path = ROOT) -> str:
    """Return the image's tag: twelve hexadecimal digits from its context and its parent's tag."""
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
    """Yield the file itself or every file below the folder, without junk, in no fixed order."""
    if path.is_dir():
        if not _is_junk(path.name, JUNK_FOLDERS):
            for child in path.iterdir():
                yield from _files(child)
    elif path.is_file() and not _is_junk(path.name, JUNK_FILES):
        yield path


def _is_junk(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)
