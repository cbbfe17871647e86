"""Parse image references in the syntax of Pyxis, enroot, Docker and skopeo."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from agents.containers.errors import ImageError

DEFAULT_REGISTRY: Final = "docker.io"
_DOCKER: Final = "docker://"
_ELSEWHERE: Final = ("dockerd://", "podman://")
_FILES: Final = ("bundle", "oci", "oci-archive", "docker-archive")
_DIGEST: Final = re.compile(r"@(sha256:[0-9a-f]{64})$")
_TAG: Final = re.compile(r":([A-Za-z0-9_][A-Za-z0-9._-]{0,127})$")
_REGISTRY: Final = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?")
_REPOSITORY: Final = re.compile(
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"  # OCI distribution specification
)
_MAX_LENGTH: Final = 1024


@dataclass(frozen=True)
class InRegistry:
    """An image in a registry."""

    registry: str
    repository: str
    tag: str
    digest: str | None = None
    user: str | None = None

    def __str__(self) -> str:
        """Return the reference in Docker's syntax."""
        name = f"{self.registry}/{self.repository}"
        return f"{name}@{self.digest}" if self.digest else f"{name}:{self.tag}"

    def source(self) -> str:
        """Return the source in skopeo's syntax."""
        return f"docker://{self}"


@dataclass(frozen=True)
class InFile:
    """An image in a file or directory."""

    path: str
    kind: Literal["path", "bundle", "oci", "oci-archive", "docker-archive"] = "path"
    """Kind of the file. `path` means that the importer finds the kind from the file's content."""

    def __str__(self) -> str:
        """Return the reference as the user wrote it."""
        return self.path if self.kind == "path" else f"{self.kind}:{self.path}"


Reference = InRegistry | InFile


def parse(text: str) -> Reference:
    """Parse the value of `--container-image`. Raises ImageError, which lists the accepted forms."""
    if not text or len(text) > _MAX_LENGTH or not text.isprintable():
        shown = text[:40] + "…" if len(text) > 40 else text
        raise ImageError(f"image {shown!r}: expected 1 to {_MAX_LENGTH} printable characters")
    if text.startswith(("/", "./", "../")):
        return InFile(text)
    if text.startswith(_ELSEWHERE):
        raise ImageError(
            f"image {text}: nodes run no Docker or Podman daemon: push the image to a registry, or "
            "run `docker save` and use docker-archive:PATH"
        )
    for kind in _FILES:
        if text.startswith(f"{kind}:"):
            return InFile(text.removeprefix(f"{kind}:"), kind)
    return _parse_registry(text)


def _parse_registry(text: str) -> InRegistry:
    rest = text.removeprefix(_DOCKER)
    digest = _DIGEST.search(rest)
    rest = rest[: digest.start()] if digest else rest
    user, at, rest = rest.rpartition("@")
    registry, hash_sign, rest = rest.rpartition("#")
    tag = _TAG.search(rest)
    rest = rest[: tag.start()] if tag else rest
    if not hash_sign:
        registry, rest = _split_as_docker(rest)
    if registry == DEFAULT_REGISTRY and "/" not in rest:
        rest = f"library/{rest}"
    bad_user = at and not user
    if bad_user or not _REGISTRY.fullmatch(registry) or not _REPOSITORY.fullmatch(rest):
        raise ImageError(
            f"image {text}: expected [USER@][REGISTRY#]IMAGE[:TAG], such as ubuntu:24.04 or "
            "nvcr.io#nvidia/pytorch:25.06-py3, or a path that starts with / or ./"
        )
    return InRegistry(
        registry=registry,
        repository=rest,
        tag=tag[1] if tag else "latest",
        digest=digest[1] if digest else None,
        user=user or None,
    )


def _split_as_docker(name: str) -> tuple[str, str]:
    """Split a name without `#` into the registry and the rest, as Docker does.

    The first part is a registry if it contains a dot or a port, or is `localhost`.
    """
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return DEFAULT_REGISTRY, name
