"""Settings of volumes."""

from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import PurePosixPath
from typing import Literal, Self

from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from components.conventions import JAIL, WORKER_PATHS, WORKER_VOLUMES
from components.settings.types import (
    Cidr,
    DnsLabel,
    Domain,
    Host,
    Line,
    MemoryMiB,
    Model,
    MountOption,
    ObjectName,
    Path,
    SecretName,
    StorageClassName,
    cross_field,
    duplicates,
)

_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp")
_JAIL_SYSTEM = (*_SYSTEM, "/usr", "/var")
"""Folders of the jail that belong to the jail's image or to the nodes."""
_SITES_OWN = "/usr/local"
"""Exception in /usr: the site owns this folder (source: Filesystem Hierarchy Standard, section
4.9)."""
_NAME_LENGTH = 58
"""Maximum length of a name: Kubernetes allows 63 characters, including the prefix `jail-`."""


def system_folder(path: str) -> str | None:
    """Return the system folder of the jail that contains a path, or that is this path itself.

    Return None if the path is in no system folder.
    """
    above = PurePosixPath(path, "x").parents
    if PurePosixPath(_SITES_OWN) in above:
        return None
    return next((folder for folder in _JAIL_SYSTEM if PurePosixPath(folder) in above), None)


def _refuse_system(path: str, in_jail: str | None) -> None:
    """Refuse the field `path` of a volume that would hide files of the jail's system."""
    if folder := system_folder(in_jail or "/"):
        raise cross_field(
            "path",
            f"'{path}': a volume there would hide files of the system in {folder}; choose a path "
            f"outside {folder}",
        )


class Empty(Model):
    """Space that is deleted with the pod."""

    size: MemoryMiB | None = None
    """Size limit, such as '10GiB'; by default all of the machine's space."""
    medium: Literal["disk", "memory"] = "disk"
    """memory: files use the pod's memory."""


class Nfs(Model):
    """A folder that an NFS server exports."""

    server: Host
    """Host name or address of the server; the Kubernetes nodes resolve it."""
    path: Path
    """The exported folder."""


class NfsExport(Nfs):
    """A folder that an NFS server exports, with mount options."""

    options: tuple[MountOption, ...] = ()
    """Mount options, such as 'nfsvers=4.2'."""


class NfsServer(Model):
    """The stack's own NFS server, on a volume that only one machine mounts at a time."""

    storage_class: StorageClassName | None = None
    """StorageClass of the server's volume; by default the cluster's default."""
    machines: tuple[Cidr, ...] = ()
    """Address ranges of the Kubernetes nodes, such as '10.0.0.0/16', without pod addresses. Only
    these nodes can mount the jail. Optional with network.policies: cilium."""

    @field_validator("machines")
    @classmethod
    def _are_understood(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # Ganesha 6.5, the NFS server, reads only two digits of a prefix length (source:
        # src/config_parsing/conf_lex.l). It would take /112 for /11.
        for cidr in value:
            if 99 < ip_network(cidr).prefixlen < 128:
                raise PydanticCustomError(
                    "prefix",
                    "expected a prefix length of at most /99, because the NFS server reads only "
                    "two digits of it, or a single address (/128)",
                )
        return value


class Csi(Model):
    """An existing volume of a CSI driver."""

    driver: Domain
    """Name of the CSI driver, such as 'csi.example.org'."""
    handle: Line
    """Id of the volume in the driver (volumeHandle)."""
    attributes: dict[Line, str] = {}
    """Further attributes for the driver."""
    options: tuple[MountOption, ...] = ()
    node_stage_secret: SecretName | None = None
    """Secret in the stack's namespace that the driver uses to mount the volume on a Kubernetes
    node."""
    node_publish_secret: SecretName | None = None
    """Secret in the stack's namespace that the driver uses to mount the volume for a pod."""


class Source(Model):
    """A volume from one of several sources."""

    name: DnsLabel
    claim: DnsLabel | None = None
    """Name of a PersistentVolumeClaim."""
    host_path: Path | None = None
    """Folder of the Kubernetes node."""
    nfs: Nfs | None = None
    empty: Empty | None = None
    """Space that is deleted with the pod."""
    config_map: ObjectName | None = None
    """Name of a ConfigMap; its entries are the files."""
    secret: SecretName | None = None
    """Name of a Secret; its entries are the files."""
    read_only: bool = False

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = ("claim", "host_path", "nfs", "empty", "config_map", "secret")
        given = [source for source in sources if getattr(self, source) is not None]
        if len(given) != 1:
            raise cross_field(
                "name",
                f"volume '{self.name}' has {' and '.join(given) or 'no source'}; set exactly one "
                f"of {', '.join(sources)}",
            )
        return self


class Volume(Source):
    """A further volume of the nodeset's pods, from one source."""

    path: Path
    """Mount path in the worker. Jobs see only paths below /mnt/jail: they see /mnt/jail/data as
    /data."""

    @model_validator(mode="after")
    def _fits_beside_ours(self) -> Self:
        if self.name in WORKER_VOLUMES:
            raise cross_field(
                "name", f"'{self.name}': is a volume that every worker has; choose another name"
            )
        for path in WORKER_PATHS:
            inside = self.path.startswith(f"{path}/") and path != JAIL
            if self.path == path or inside:
                raise cross_field(
                    "path",
                    f"'{self.path}': every worker itself uses {path}; choose another path",
                )
            if path.startswith(f"{self.path}/"):
                raise cross_field(
                    "path",
                    f"'{self.path}': a volume there would hide {path}, which every worker uses; "
                    "choose another path",
                )
        _refuse_system(self.path, self.in_jail())
        return self

    def in_jail(self) -> str | None:
        """Return the path at which jobs see the volume, or None."""
        return self.path.removeprefix(JAIL) if self.path.startswith(f"{JAIL}/") else None


class Submount(Source):
    """A further volume in the jail, on all nodes, from one source."""

    path: Path
    """Path for users, such as '/data' or '/home'."""
    login: bool = True
    """Mount the volume on login nodes too. With `empty` and `host_path`, each node has its own
    files."""

    @model_validator(mode="after")
    def _fits_the_jail(self) -> Self:
        if self.name == "jail":
            # In metrics, the jail's own volume has this name. Metrics could not distinguish two
            # volumes with the same name.
            raise cross_field(
                "name", "'jail': is the name of the jail's own volume; choose another name"
            )
        if len(self.name) > _NAME_LENGTH:
            raise cross_field("name", f"'{self.name}': expected at most {_NAME_LENGTH} characters")
        if self.path == "/home" and self.empty:
            raise cross_field(
                "path",
                "'/home': cannot use the setting 'empty', because each node would then have "
                "its own, separate homes; set 'claim' instead",
            )
        _refuse_system(self.path, self.path)
        return self


def each_its_own(volumes: Iterable[Volume | Submount]) -> None:
    """Refuse volumes with the same name or path, in a model with a field `volumes`."""
    listed = tuple(volumes)
    for name in duplicates(volume.name for volume in listed):
        raise cross_field("volumes", f"two volumes are named '{name}'; give each a unique name")
    for path in duplicates(volume.path for volume in listed):
        raise cross_field(
            "volumes", f"two volumes are mounted at '{path}'; give each a unique path"
        )
