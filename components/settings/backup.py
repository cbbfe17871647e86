"""Settings of backups: their store, and the sets with jail, queue and accounting."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from components.settings.types import (
    Bucket,
    Cron,
    DnsLabel,
    Endpoint,
    Line,
    MemoryMiB,
    Model,
    Number,
    ObjectPrefix,
    ProjectFile,
    SecretName,
    StorageClassName,
    Word,
    cross_field,
)
from components.settings.volumes import Nfs

_LEAST_MEMORY: Final = 256
"""Minimum memory of a backup in MiB."""


class S3(Model):
    """A bucket on an S3-compatible server."""

    endpoint: Endpoint
    """URL of the server, such as 'https://s3.example.org'."""
    bucket: Bucket
    """Name of the bucket; created if it is missing and the credentials allow its creation."""
    prefix: ObjectPrefix | None = None
    """Prefix of all object names, before the cluster's name."""
    region: Word | None = None
    """Region for signing requests, if the server requires one."""
    secret: SecretName
    """Secret in the stack's namespace with the credentials in its entries `access_key` and
    `secret_key`."""
    ca: ProjectFile | None = None
    """File with CA certificates (PEM) to verify the server: a path relative to the project, read at
    deploy time. The default is the public CA certificates."""


class Keep(Model):
    """Rules about which backups to keep. One backup can satisfy several rules."""

    last: Annotated[int, Field(ge=0, le=10_000), Number] = 3
    """Number of newest backups to keep."""
    daily: Annotated[int, Field(ge=0, le=10_000), Number] = 7
    """Number of days; the last backup of each day is kept."""
    weekly: Annotated[int, Field(ge=0, le=10_000), Number] = 5
    """Number of weeks; the last backup of each week is kept."""
    monthly: Annotated[int, Field(ge=0, le=10_000), Number] = 12
    """Number of months; the last backup of each month is kept."""

    @model_validator(mode="after")
    def _keeps_some(self) -> Self:
        if not any((self.last, self.daily, self.weekly, self.monthly)):
            raise cross_field(
                "last",
                "0: 'last', 'daily', 'weekly' and 'monthly' are all 0, so the deploy would keep "
                "no backup; set one of these settings to 1 or more",
            )
        return self


class Store(Model):
    """A store of backups, and how many it keeps."""

    keep: Keep = Field(default_factory=Keep)
    size: MemoryMiB = Field("20GiB", validate_default=True)
    """Size of the stack's own volume for backups."""
    storage_class: StorageClassName | None = None
    """StorageClass of the volume for backups; by default the cluster's default."""
    claim: DnsLabel | None = None
    """Name of an existing PersistentVolumeClaim, instead of the stack's own volume."""
    nfs: Nfs | None = None
    """Folder that an NFS server exports, instead of the stack's own volume."""
    s3: S3 | None = None
    """A bucket, instead of a volume."""

    def is_own(self) -> bool:
        """Return whether the stack creates the volume."""
        return not (self.claim or self.nfs or self.s3)

    @model_validator(mode="after")
    def _is_one_store(self) -> Self:
        kinds = ("storage_class", "claim", "nfs", "s3")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) > 1:
            raise cross_field(
                given[0],
                f"cannot be combined with {' and '.join(map(repr, given[1:]))}, because all "
                "backups go to one store; keep only one of these settings",
            )
        if given and given[0] != "storage_class" and "size" in self.model_fields_set:
            raise cross_field(
                "size",
                f"{self.size} MiB: has no effect, because '{given[0]}' is set and determines "
                "the store of the backups; remove 'size'",
            )
        return self


class Backup(Store):
    """Sets of backups: the queue, the accounting database, the jail and the jail's volumes."""

    schedule: Cron = "17 1 * * *"
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    size: MemoryMiB = Field("200GiB", validate_default=True)
    """Size of the stack's own volume for backups."""
    password_secret: SecretName
    """Secret in the stack's namespace; its entry `password` encrypts the backups."""
    exclude: tuple[Line, ...] = ("/tmp/*", "/var/cache/*", "/var/tmp/*")
    """Patterns of restic for files to leave out, such as '*.core'. A pattern with a leading slash
    is a path in the jail and in each of its volumes. With '/*' at its end, the folder stays."""
    largest_file: MemoryMiB = Field("1TiB", validate_default=True)
    """Size of the largest file. Larger ones are left out: restic also reads the holes of sparse
    files, so one such file could stop all backups."""
    upload: Annotated[int, Field(ge=1), Number] | None = None
    """Limit in KiB/s for uploads to the store; by default no limit."""
    cpus: Annotated[float, Field(ge=0.1, le=1024), Number] = 2
    """Limit of CPUs for a backup."""
    memory: MemoryMiB = Field("2GiB", validate_default=True)
    """Limit of memory for a backup."""
    restore: DnsLabel | None = None
    """Set to restore: 'latest', or a set's id. Each part is restored before its daemon starts, and
    only if its volume is empty. Meanwhile, the stack takes no backups."""

    @model_validator(mode="after")
    def _has_memory_for_restic(self) -> Self:
        if self.memory < _LEAST_MEMORY:
            raise cross_field(
                "memory",
                f"{self.memory}MiB: expected at least {_LEAST_MEMORY}MiB, because restic keeps its "
                "index in memory",
            )
        return self
