"""Files and environments of the programs that make backups and restore them (agents/backup)."""

from pathlib import Path

from components import conventions as c
from components.settings import Settings, Store
from components.slurmconf.accounting import client_files
from components.slurmconf.scripts import read_text

_CA = "store-ca.pem"


def dump_files(settings: Settings, root: Path = Path()) -> dict[str, str]:
    """Return the files for dumps of the database and their restores by name, without credentials.

    Paths in the settings are relative to `root`. Raises `SettingsError` if a file cannot be used.
    """
    store = settings.accounting.backup
    return client_files(settings, root) | _store_files("accounting.backup", store, root)


def backup_files(settings: Settings, root: Path = Path()) -> dict[str, str]:
    """Return the files for backups and restores of sets by name, without credentials.

    Paths in the settings are relative to `root`. Raises `SettingsError` if a file cannot be used.
    """
    if settings.backup is None:
        return {}
    database = client_files(settings, root) if settings.accounting.enabled else {}
    return database | _store_files("backup", settings.backup, root)


def _store_files(key: str, store: Store, root: Path) -> dict[str, str]:
    if not (store.s3 and store.s3.ca):
        return {}
    return {_CA: read_text(f"{key}.s3.ca", store.s3.ca, root)}


def dump_environment(settings: Settings) -> dict[str, str]:
    """Return the environment for dumps and restores: database, store, and dumps to keep."""
    dumps = settings.accounting.backup
    return {
        "DATABASE": settings.accounting.server().name,
        **_store_environment(dumps, settings.cluster_name),
        **({"SNAPSHOT": dumps.restore} if dumps.restore else {}),
    }


def backup_environment(settings: Settings) -> dict[str, str]:
    """Return the environment for sets: database, store, and sets to keep."""
    backup = settings.backup
    if backup is None:
        return {}
    return {
        "DATABASE": settings.accounting.server().name,
        "EXCLUDE": "\n".join(backup.exclude),
        "LARGEST": str(backup.largest_file),
        # The store may have a repository of dumps too.
        **_store_environment(backup, settings.cluster_name, "sets"),
        **({"UPLOAD": str(backup.upload)} if backup.upload else {}),
        **({"RESTORE": backup.restore} if backup.restore else {}),
    }


def _store_environment(store: Store, cluster: str, *below: str) -> dict[str, str]:
    s3, address = store.s3, c.BACKUP_DATA
    if s3:
        address = "/".join(part for part in (f"s3:{s3.endpoint}", s3.bucket, s3.prefix) if part)
    keep = {name: count for name, count in store.keep.model_dump().items() if count}
    return {
        "CLUSTER": cluster,
        "KEEP": " ".join(f"--keep-{name}={count}" for name, count in keep.items()),
        # Each cluster has its own folder, because clusters can share a store.
        "RESTIC_REPOSITORY": "/".join((address, *below, cluster)),
        **({"AWS_DEFAULT_REGION": s3.region} if s3 and s3.region else {}),
    }
