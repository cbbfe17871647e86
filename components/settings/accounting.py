"""Settings of accounting: slurmdbd, its database and backups."""

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
from components.settings.backup import Store
from components.settings.types import (
    Cron,
    DumpName,
    Host,
    MemoryMiB,
    Model,
    Number,
    Port,
    ProjectFile,
    PurgeAge,
    SecretName,
    StorageClassName,
    UserName,
    Word,
    cross_field,
)

DATABASE_NAME = "slurm_acct_db"
"""Default of StorageLoc (slurmdbd.conf(5))."""


class BundledDatabase(Model):
    """The stack's own MariaDB."""

    size: MemoryMiB = Field("20GiB", validate_default=True)
    """Size of the database's volume."""
    storage_class: StorageClassName | None = None
    """StorageClass of the database's volume; by default the cluster's default."""
    buffer_pool: MemoryMiB = Field("4GiB", validate_default=True)
    """Memory for cached tables; Slurm's manual recommends at least 4 GiB."""
    host: ClassVar[str] = DATABASE
    port: ClassVar[int] = MARIADB_PORT
    name: ClassVar[str] = DATABASE_NAME
    user: ClassVar[str] = "slurm"
    tls_ca: ClassVar[None] = None


class ExternalDatabase(Model):
    """An existing MariaDB or MySQL."""

    host: Host
    """Host name or address of the database server."""
    port: Port = MARIADB_PORT
    name: Word = DATABASE_NAME
    """Name of the database; created if it is missing and `user` may create databases."""
    user: Word = "slurm"
    password_secret: SecretName
    """Secret in the stack's namespace; its entry `password` is the password of `user`."""
    tls_ca: ProjectFile | None = None
    """File with CA certificates (PEM) to verify the server: a path relative to the project, read at
    deploy time. Without this file, the connection is encrypted only if the server supports it."""


class Purge(Model):
    """Ages at which records are removed, such as '24months', '90days' or '36hours'; default: never.

    slurmdbd removes records at the beginning of each month, day or hour, depending on the unit of
    the age.
    """

    events: PurgeAge | None = None
    """Records of nodes that were down or drained."""
    jobs: PurgeAge | None = None
    reservations: PurgeAge | None = None
    steps: PurgeAge | None = None
    suspensions: PurgeAge | None = None
    transactions: PurgeAge | None = None
    """Records of changes to accounts, with their authors."""
    usage: PurgeAge | None = None
    """Usage totals by hour, day and month."""


class Archive(Model):
    """A volume for records that `purge` removes; `sacctmgr archive load` restores them."""

    size: MemoryMiB = Field("20GiB", validate_default=True)
    storage_class: StorageClassName | None = None
    """StorageClass of the volume; by default the cluster's default."""


def _refuse_settings_of_disabled(model: "Dumps | Accounting") -> None:
    chosen = model.model_fields_set - {"enabled"}
    if not model.enabled and chosen:
        raise cross_field(
            min(chosen),
            "has no effect, because 'enabled' in the same section is false; remove this setting, "
            "or remove 'enabled: false'",
        )


class Dumps(Store):
    """Dumps of the database, on a volume or in a bucket."""

    enabled: bool = True
    schedule: Cron = "17 3 * * *"
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    password_secret: SecretName | None = None
    """Secret in the stack's namespace; its entry `password` encrypts the dumps. Without a Secret,
    anyone with access to the store can read the dumps."""
    restore: DumpName | None = None
    """Dump to restore: 'latest', or a dump's name. The dump is loaded before slurmdbd starts, and
    only if the database has no tables."""

    @model_validator(mode="after")
    def _disabled_has_no_settings(self) -> Self:
        _refuse_settings_of_disabled(self)
        return self


class Accounting(Model):
    """slurmdbd and its database, for `sacct`, accounts, limits and fair-share."""

    enabled: bool = True
    database: BundledDatabase = Field(default_factory=BundledDatabase)
    external: ExternalDatabase | None = None
    """An existing database, instead of the stack's own."""
    gather_interval: Annotated[int, Field(ge=0, le=65533), Number] = 30
    """Seconds between two samples of a task's resource usage; 0: only one sample, when the task
    ends."""
    energy: Literal["none", "gpu", "ipmi", "pm_counters", "rapl", "xcc"] = "none"
    """Source of energy measurements on the nodes."""
    store_scripts: bool = False
    """Keep job scripts, for `sacct --batch-script`."""
    store_environments: bool = False
    """Keep the environments of submitted jobs, for `sacct --env-vars`."""
    purge: Purge = Field(default_factory=Purge)
    archive: Archive | None = None
    """Volume for records that `purge` removes; without it, these records are lost."""
    enforce: tuple[Enforced, ...] = ("associations", "limits", "qos")
    """Rules that Slurm enforces by refusing or holding jobs. With `directory`, the default is no
    rules: directory-only users have no association, so they could not submit jobs."""
    accounts: tuple[Account, ...] = ()
    default_account: AccountName = "users"
    """Account of users who are in no account of `accounts`. The deploy creates it if needed."""
    qos: tuple[Qos, ...] = ()
    """Qualities of service."""
    operators: tuple[UserName, ...] = ()
    """Users with AdminLevel Operator: they can see everything and change accounts, but they cannot
    change AdminLevels."""
    administrators: tuple[UserName, ...] = ()
    """Users with AdminLevel Administrator: they have root's rights in Slurm."""
    remove_with_jobs: tuple[Removal, ...] = ()
    """Objects to remove even if jobs use them, such as 'user ada account physics'. The deploy
    cancels these jobs."""
    backup: Dumps = Field(default_factory=Dumps)

    def server(self) -> BundledDatabase | ExternalDatabase:
        """Return the database in use."""
        return self.external or self.database

    @model_validator(mode="after")
    def _is_one_database(self) -> Self:
        if self.external and "database" in self.model_fields_set:
            raise cross_field(
                "database",
                "cannot be combined with accounting.external, because slurmdbd uses only one "
                "database; keep only one of the two settings",
            )
        return self

    @model_validator(mode="after")
    def _archive_has_something_to_keep(self) -> Self:
        if self.archive and not self.purge.model_fields_set:
            raise cross_field(
                "archive",
                "has no effect, because slurmdbd archives only records that it purges; add "
                "accounting.purge, or remove accounting.archive",
            )
        return self

    @model_validator(mode="after")
    def _accounts_fit(self) -> Self:
        check_names(self.accounts, self.qos)
        check_defaults(self.accounts)
        if self.default_account == ROOT:
            raise cross_field(
                "default_account",
                f"'{ROOT}': Slurm reserves this name for the root of the account tree; choose "
                "another account name",
            )
        for name in sorted({*self.operators} & {*self.administrators}):
            raise cross_field(
                "operators",
                f"user '{name}' is also in accounting.administrators; keep the user in only "
                "one of the two lists",
            )
        for thing in self.remove_with_jobs:
            if thing in things(self.accounts, self.qos):
                raise cross_field(
                    "remove_with_jobs",
                    f"'{thing}': the deploy would remove an object that accounting.accounts or "
                    "accounting.qos still lists; remove it from that setting, or from "
                    "remove_with_jobs",
                )
        return self

    @model_validator(mode="after")
    def _disabled_has_no_settings(self) -> Self:
        _refuse_settings_of_disabled(self)
        return self
