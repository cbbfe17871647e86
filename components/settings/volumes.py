"""Where pods have their files from."""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Literal, Self

from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from components.conventions import JAIL, WORKER_PATHS, WORKER_VOLUMES
from components.settings.types import (
    Cidr,
    DnsLabel,
    Domain,
    Line,
    MemoryMiB,
    Model,
    MountOption,
    Path,
    cross_field,
    duplicates,
)

_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp")
_JAIL_SYSTEM = (*_SYSTEM, "/usr", "/var")
"""Folders of the jail that belong to its image or to nodes."""
_SITES_OWN = "/usr/local"
"""What is the site's below one of them (Filesystem Hierarchy Standard, section 4.9)."""
_NAME_LENGTH = 58
"""Most characters of a name that `jail-` comes before, for Kubernetes to take it."""


class Empty(Model):
    """Room that goes with the pod."""

    size: MemoryMiB | None = None
    """At most this much, as '10GiB'; by default what the machine has."""
    medium: Literal["disk", "memory"] = "disk"
    """Where it lies; memory counts against the pod's own."""


class Nfs(Model):
    """A folder that an NFS server exports."""

    server: Domain
    """Its host name or address, as the Kubernetes nodes know it."""
    path: Path
    """The exported folder."""


class NfsExport(Nfs):
    """The same, as a volume of the cluster's."""

    options: tuple[MountOption, ...] = ()
    """Options to mount it with, as 'nfsvers=4.2'."""


class NfsServer(Model):
    """An NFS server of the stack's own, on a volume that one machine at a time has."""

    storage_class: str | None = None
    """Class of that volume; by default the cluster's default class."""
    machines: tuple[Cidr, ...] = ()
    """Ranges of the addresses by which the server sees Kubernetes nodes, who alone mount the jail;
    none of pods, as '10.0.0.0/16'. May be left out where network.policies is cilium."""

    @field_validator("machines")
    @classmethod
    def _are_understood(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # Ganesha 6.5 reads two digits of a prefix (src/config_parsing/conf_lex.l).
        for cidr in value:
            if 99 < ip_network(cidr).prefixlen < 128:
                raise PydanticCustomError(
                    "prefix", "expected prefixes of at most 99 bits, or single addresses (/128)"
                )
        return value


class Csi(Model):
    """A volume that a storage driver knows already."""

    driver: Domain
    """Name of the CSI driver, as 'csi.example.org'."""
    handle: Line
    """The driver's own name of the volume."""
    attributes: dict[Line, str] = {}
    """What the driver wants to know of it."""
    options: tuple[MountOption, ...] = ()
    """Options to mount it with."""
    node_stage_secret: Domain | None = None
    """Secret of the namespace, by which the driver mounts it on a Kubernetes node."""
    node_publish_secret: Domain | None = None
    """Secret of the namespace, by which the driver mounts it for a pod."""


class Source(Model):
    """A volume with one of several sources."""

    name: DnsLabel
    claim: DnsLabel | None = None
    """Name of a PersistentVolumeClaim."""
    host_path: Path | None = None
    """Folder of the Kubernetes node."""
    nfs: Nfs | None = None
    empty: Empty | None = None
    """Room that goes with the pod."""
    config_map: Domain | None = None
    """Name of a ConfigMap, whose entries are the files."""
    secret: Domain | None = None
    """Name of a Secret, whose entries are the files."""
    read_only: bool = False

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = ("claim", "host_path", "nfs", "empty", "config_map", "secret")
        given = [source for source in sources if getattr(self, source) is not None]
        if len(given) != 1:
            raise cross_field(
                "name",
                f"'{self.name}': has {' and '.join(given) or 'no source'}; "
                f"expected one of {', '.join(sources)}",
            )
        return self


class Volume(Source):
    """A further volume of the nodeset's pods, from one source."""

    path: Path
    """Where the worker mounts it; below /mnt/jail jobs see it, as /mnt/jail/data for /data."""

    @model_validator(mode="after")
    def _fits_beside_ours(self) -> Self:
        if self.name in WORKER_VOLUMES:
            raise cross_field("name", f"'{self.name}': is a volume of every worker; choose another")
        for path in WORKER_PATHS:
            inside = self.path.startswith(f"{path}/") and path != JAIL
            if self.path == path or inside:
                raise cross_field("path", f"'{self.path}': {path} is in use; choose another")
            if path.startswith(f"{self.path}/"):
                raise cross_field("path", f"'{self.path}': would hide {path}; choose another")
        return self

    def in_jail(self) -> str | None:
        """The path at which jobs see it, if they do."""
        return self.path.removeprefix(JAIL) if self.path.startswith(f"{JAIL}/") else None


class Submount(Source):
    """A further volume in the jail, of all nodes, from one source."""

    path: Path
    """Where users find it, as '/data'."""
    login: bool = True
    """Login nodes have it too. Of `empty` and `host_path` every node has its own."""

    @model_validator(mode="after")
    def _fits_the_jail(self) -> Self:
        if self.name == "jail":
            # To metrics, that is the volume they are mounted in.
            raise cross_field("name", "'jail': is the jail's own volume; choose another")
        if len(self.name) > _NAME_LENGTH:
            raise cross_field("name", f"'{self.name}': expected at most {_NAME_LENGTH} characters")
        if self.path == "/home" and self.empty:
            raise cross_field("path", "'/home': nodes would have homes of their own; give a claim")
        if self.path == _SITES_OWN or self.path.startswith(f"{_SITES_OWN}/"):
            return self
        for path in _JAIL_SYSTEM:
            if self.path == path or self.path.startswith(f"{path}/"):
                raise cross_field("path", f"'{self.path}': {path} is in use; choose another")
        return self


def each_its_own(volumes: Iterable[Volume | Submount]) -> None:
    """Refuses `volumes` of which two have one name or one path; for the models that list them."""
    listed = tuple(volumes)
    for name in duplicates(volume.name for volume in listed):
        raise cross_field("volumes", f"two are named '{name}'; give each a name of its own")
    for path in duplicates(volume.path for volume in listed):
        raise cross_field("volumes", f"two are mounted at '{path}'; give each its own path")
