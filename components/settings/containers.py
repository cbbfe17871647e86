"""Settings for `srun --container-image`: registries, cache and defaults."""

import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from components.settings.types import (
    MemoryMiB,
    Model,
    Number,
    Registry,
    SecretName,
    VariableName,
    cross_field,
    duplicates,
    matches,
)

_CACHE: Final = re.compile(r"(~|/[A-Za-z0-9_.@-]+)(/[A-Za-z0-9_.@%-]+)+")
_PATTERN: Final = re.compile(r"(?!.*://)[A-Za-z0-9._:/@*?\[\]-]+")
_FOLDER: Final = re.compile(r"(/[A-Za-z0-9_@-][A-Za-z0-9_.@-]*)+")
_PLACE: Final = r"/[A-Za-z0-9_.@/-]*"
_MOUNT: Final = re.compile(rf"({_PLACE}|tmpfs)(:{_PLACE}(:[a-zA-Z0-9=+.,_-]+)?)?")
_OF_SLURM: Final = ("SLURM", "PMIX", "PMI_")


def _cache(value: str) -> str:
    if not _CACHE.fullmatch(value) or ".." in value.split("/"):
        raise PydanticCustomError(
            "cache", "expected a path per user, such as '~/.cache/slurmstack' or '/local/%u'"
        )
    if not value.startswith("~/") and "%u" not in value:
        raise PydanticCustomError(
            "cache",
            "all users would share this cache; add %u, which becomes the user's name, such as "
            "'/local/%u'",
        )
    return value


def _mount(value: str) -> str:
    if not _MOUNT.fullmatch(value) or ".." in value.split("/"):
        raise PydanticCustomError(
            "container_mount", "expected SOURCE:TARGET[:FLAGS], such as '/data:/data:ro'"
        )
    return value


def _variable(value: str) -> str:
    if value.startswith(_OF_SLURM):
        raise PydanticCustomError("variable", "is reserved by Slurm; choose another name")
    return value


ImagePattern = Annotated[
    str, matches(_PATTERN, "pattern", "a pattern of images, such as 'nvcr.io/*'")
]


class ImageRegistry(Model):
    """A registry that has mirrors, or no TLS."""

    name: Registry
    """Host of the registry, with an optional port and path prefix."""
    mirrors: tuple[Registry, ...] = ()
    """Mirrors and pull-through caches, in the order in which they are tried."""
    insecure: bool = False
    """Allow HTTP and unverified certificates."""


class Containers(Model):
    """Jobs in container images (`srun --container-image`). With options of `srun`, users can
    override the settings that say 'by default'."""

    enabled: bool = True
    """Offer `--container-image` and its related options."""
    cache: Annotated[str, AfterValidator(_cache)] = "~/.cache/slurmstack"
    """Path of each user's cache: in the home directory (~), which all nodes share, or on a node's
    disk, with %u for the user's name."""
    site_cache: Annotated[str, matches(_FOLDER, "folder", "a path such as '/images'")] | None = None
    """Directory in the jail with image layers for all users. The site creates a user who owns the
    directory and adds layers with `slurm-image share`."""
    cache_size: MemoryMiB = Field("100GiB", validate_default=True)
    """Size limit of a user's cache. The least recently used images are removed first."""
    image_size: MemoryMiB = Field("100GiB", validate_default=True)
    """Size limit of an image's files."""
    fresh_for: Annotated[int, Field(ge=0, le=31_536_000), Number] = 3600
    """Seconds until a job looks up an image's tag in the registry again."""
    allowed: tuple[ImagePattern, ...] = ()
    """Patterns of permitted registry images, such as 'nvcr.io/nvidia/*'; by default all. Images in
    files are always permitted."""
    registries: tuple[ImageRegistry, ...] = ()
    credentials_secret: SecretName | None = None
    """Secret of type kubernetes.io/dockerconfigjson with credentials of registries, for users who
    have no credentials of their own. All users can read this Secret."""
    mounts: tuple[Annotated[str, AfterValidator(_mount)], ...] = ()
    """Mounts in every container, in the syntax of `--container-mounts`."""
    environment: dict[
        Annotated[VariableName, AfterValidator(_variable)],
        Annotated[str, StringConstraints(max_length=4096)],
    ] = {}
    """Environment variables in every container; the image's own variables take precedence."""
    mount_home: bool = True
    """By default, mount the home directory in the container."""
    remap_root: bool = False
    """By default, run as root in the container."""
    entrypoint: bool = False
    """By default, run the image's entrypoint."""
    writable: bool = True
    """By default, let a container write to its own files."""

    @field_validator("allowed")
    @classmethod
    def _empty_list_is_no_ban(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise PydanticCustomError(
                "allowed",
                "an empty list would permit all images; add patterns such as 'nvcr.io/*', or set "
                "containers.enabled to false",
            )
        return value

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for name in duplicates(registry.name for registry in self.registries):
            raise cross_field(
                "registries",
                f"registry '{name}' is listed twice; remove one of the two entries",
            )
        return self

    @model_validator(mode="after")
    def _values_are_lines(self) -> Self:
        for name, value in self.environment.items():
            if not value.isprintable():
                raise cross_field(
                    f"environment.{name}",
                    "the value contains unprintable characters; remove these characters",
                )
        return self
