"""What is remembered of jobs, and where."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from components.conventions import DATABASE, MARIADB_PORT
from components.settings.accounts import (
    ROOT,
    Account,
    AccountName,
    Enforced,
    Qos,
    Removal,
    check_defaults,
    check_names,
    things,
)
from components.settings.types import (
    Bucket,
    Cron,
    DnsLabel,
    Domain,
    DumpName,
    Endpoint,
    MemoryMiB,
    Model,
    Number,
    ObjectPrefix,
    Port,
    ProjectFile,
    PurgeAge,
    UserName,
    Word,
    cross_field,
)
from components.settings.volumes import Nfs

DATABASE_NAME = "slurm_acct_db"
"""What Slurm takes by default."""


class BundledDatabase(Model):
    """A MariaDB of the stack's own."""

    size: MemoryMiB = Field("20GiB", validate_default=True)
    """Size of its volume."""
    storage_class: str | None = None
    """Class of that volume; by default the cluster's default class."""
    buffer_pool: MemoryMiB = Field("4GiB", validate_default=True)
    """Memory in which it keeps tables; Slurm's manual asks for 4 GiB and more."""
    host: ClassVar[str] = DATABASE
    port: ClassVar[int] = MARIADB_PORT
    name: ClassVar[str] = DATABASE_NAME
    user: ClassVar[str] = "slurm"
    tls_ca: ClassVar[None] = None


class ExternalDatabase(Model):
    """A MariaDB or MySQL that is there already."""

    host: Domain
    """Its name or address."""
    port: Port = MARIADB_PORT
    name: Word = DATABASE_NAME
    """Database of the cluster; it is made if the user may do so."""
    user: Word = "slurm"
    password_secret: Domain
    """Secret of the namespace whose entry `password` is the user's password."""
    tls_ca: ProjectFile | None = None
    """File with the certificates (PEM) that vouch for the server, relative to the project; read at
    deploy time. By default the connection is encrypted where the server offers it."""


class Purge(Model):
    """After what time records are removed, as '24months', '90days' or '36hours'; by default never.

    Removal takes place at the beginning of a month, a day or an hour, as the unit says.
    """

    events: PurgeAge | None = None
    """When nodes were down or drained."""
    jobs: PurgeAge | None = None
    reservations: PurgeAge | None = None
    steps: PurgeAge | None = None
    suspensions: PurgeAge | None = None
    transactions: PurgeAge | None = None
    """Who changed what in the accounts."""
    usage: PurgeAge | None = None
    """Sums of use by hour, day and month."""


class Archive(Model):
    """A volume for the records that are removed, which `sacctmgr archive load` brings back."""

    size: MemoryMiB = Field("20GiB", validate_default=True)
    """Size of the volume."""
    storage_class: str | None = None
    """Class of the volume; by default the cluster's default class."""


class S3(Model):
    """A bucket behind an S3 interface."""

    endpoint: Endpoint
    """Its server, as 'https://s3.example.org'."""
    bucket: Bucket
    """Its name; it is made if the credentials may do so."""
    prefix: ObjectPrefix | None = None
    """What the names of all objects begin with, before the cluster's name."""
    region: Word | None = None
    """Region to sign requests for, where the server asks for one."""
    secret: Domain
    """Secret of the namespace whose entries `access_key` and `secret_key` are the credentials."""
    ca: ProjectFile | None = None
    """File with the certificates (PEM) that vouch for the server, relative to the project; read at
    deploy time. By default the public ones."""


class Keep(Model):
    """How many dumps are kept; one that several of these name counts for each."""

    last: Annotated[int, Field(ge=0, le=10_000), Number] = 3
    """The newest."""
    daily: Annotated[int, Field(ge=0, le=10_000), Number] = 7
    """The last one of a day, of so many days."""
    weekly: Annotated[int, Field(ge=0, le=10_000), Number] = 5
    """The last one of a week."""
    monthly: Annotated[int, Field(ge=0, le=10_000), Number] = 12
    """The last one of a month."""

    @model_validator(mode="after")
    def _keeps_some(self) -> Self:
        if not any((self.last, self.daily, self.weekly, self.monthly)):
            raise cross_field("last", "0, as all others: expected one of them to keep a dump")
        return self


def _off_alone(model: "Backup | Accounting") -> None:
    """Refuses whatever is said of something that is switched off."""
    chosen = model.model_fields_set - {"enabled"}
    if not model.enabled and chosen:
        raise cross_field(min(chosen), "counts not with enabled: false; leave it out, or drop that")


class Backup(Model):
    """Dumps of the database, on a volume or in a bucket."""

    enabled: bool = True
    schedule: Cron = "17 3 * * *"
    """When, as cron writes it: minute, hour, day of the month, month, day of the week; in UTC."""
    keep: Keep = Field(default_factory=Keep)
    size: MemoryMiB = Field("20GiB", validate_default=True)
    """Size of a volume of ours for them."""
    storage_class: str | None = None
    """Class of that volume; by default the cluster's default class."""
    claim: DnsLabel | None = None
    """A PersistentVolumeClaim of the namespace, in place of one of ours."""
    nfs: Nfs | None = None
    """A folder that an NFS server exports, in place of a volume of ours."""
    s3: S3 | None = None
    """A bucket, in place of a volume."""
    password_secret: Domain | None = None
    """Secret of the namespace whose entry `password` encrypts the dumps; by default who reads the
    store reads them."""
    restore: DumpName | None = None
    """What is loaded into a database that has no tables yet, before slurmdbd starts: 'latest', or
    a dump's name."""

    @model_validator(mode="after")
    def _is_one_store(self) -> Self:
        kinds = ("storage_class", "claim", "nfs", "s3")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) > 1:
            raise cross_field(
                given[0], f"is one store, and {' and '.join(given[1:])} another; keep one"
            )
        if given and given[0] != "storage_class" and "size" in self.model_fields_set:
            raise cross_field("size", f"{self.size} MiB: is of a volume of ours; leave it out")
        return self

    @model_validator(mode="after")
    def _counts_where_it_is_on(self) -> Self:
        _off_alone(self)
        return self


class Accounting(Model):
    """slurmdbd and its database: `sacct`, accounts, limits, fair shares."""

    enabled: bool = True
    database: BundledDatabase = Field(default_factory=BundledDatabase)
    external: ExternalDatabase | None = None
    """A database of somebody else's, in place of ours."""
    gather_interval: Annotated[int, Field(ge=0, le=65533), Number] = 30
    """Seconds between two looks at what tasks use; 0 looks only when they end."""
    energy: Literal["none", "gpu", "ipmi", "pm_counters", "rapl", "xcc"] = "none"
    """What the nodes measure their energy by."""
    store_scripts: bool = False
    """Keep job scripts, for `sacct --batch-script`."""
    store_environments: bool = False
    """Keep the environments that jobs were submitted with, for `sacct --env-vars`."""
    purge: Purge = Field(default_factory=Purge)
    archive: Archive | None = None
    """Where removed records are kept; by default nowhere."""
    enforce: tuple[Enforced, ...] = ("associations", "limits", "qos")
    """What a job is refused or held for. With a directory, by default nothing: who is known to that
    one alone has no association, and could not submit."""
    accounts: tuple[Account, ...] = ()
    """Accounts, and who is in them."""
    default_account: AccountName = "users"
    """Account of the users whom `accounts` puts into none; it is made for them."""
    qos: tuple[Qos, ...] = ()
    """Qualities of service."""
    operators: tuple[UserName, ...] = ()
    """Users who may see all, and change accounts, but no ranks (AdminLevel Operator)."""
    administrators: tuple[UserName, ...] = ()
    """Users who may do in Slurm whatever root may (AdminLevel Administrator)."""
    remove_with_jobs: tuple[Removal, ...] = ()
    """What goes although jobs are on it, which are cancelled: 'user ada account physics'."""
    backup: Backup = Field(default_factory=Backup)

    def server(self) -> BundledDatabase | ExternalDatabase:
        """The database that counts."""
        return self.external or self.database

    @model_validator(mode="after")
    def _is_one_database(self) -> Self:
        if self.external and "database" in self.model_fields_set:
            raise cross_field("database", "is one of ours, and external another; keep one")
        return self

    @model_validator(mode="after")
    def _archive_has_something_to_keep(self) -> Self:
        if self.archive and not self.purge.model_fields_set:
            raise cross_field("archive", "counts only with purge; add that, or leave this out")
        return self

    @model_validator(mode="after")
    def _accounts_fit(self) -> Self:
        check_names(self.accounts, self.qos)
        check_defaults(self.accounts)
        if self.default_account == ROOT:
            raise cross_field("default_account", f"'{ROOT}': is Slurm's own; choose another")
        for name in sorted({*self.operators} & {*self.administrators}):
            raise cross_field("operators", f"'{name}': is one of administrators too; keep one")
        for thing in self.remove_with_jobs:
            if thing in things(self.accounts, self.qos):
                raise cross_field("remove_with_jobs", f"'{thing}': is in the settings; drop one")
        return self

    @model_validator(mode="after")
    def _counts_where_it_is_on(self) -> Self:
        _off_alone(self)
        return self
