"""slurmdbd's files, and the lines of slurm.conf for accounting."""

from pathlib import Path

from components import conventions as c
from components.settings import Accounting, Settings
from components.settings.slurm import COMMUNICATION
from components.slurmconf.scripts import read_text
from components.slurmconf.templates import render
from components.slurmconf.tokens import JWKS, token_parameters

_CA = "ca.pem"
_KEPT_BY_SLURMDBD = frozenset({"accounts", "events", "jobs", "reservations", "usage", "users"})
"""Categories that PrivateData may contain in slurmdbd.conf(5)."""
_RECORDS = {
    "events": ("PurgeEventAfter", "ArchiveEvents"),
    "jobs": ("PurgeJobAfter", "ArchiveJobs"),
    "reservations": ("PurgeResvAfter", "ArchiveResvs"),
    "steps": ("PurgeStepAfter", "ArchiveSteps"),
    "suspensions": ("PurgeSuspendAfter", "ArchiveSuspend"),
    "transactions": ("PurgeTXNAfter", "ArchiveTXN"),
    "usage": ("PurgeUsageAfter", "ArchiveUsage"),
}
"""Kinds of records, and the keys of slurmdbd.conf(5) for their purge and their archive."""


def accounting_files(settings: Settings, root: Path = Path()) -> dict[str, str]:
    """Return the files of slurmdbd's pod by name, without the database's password.

    Paths in the settings are relative to `root`. Raises `SettingsError` if a file cannot be used.
    """
    accounting, database = settings.accounting, settings.accounting.server()
    files = {
        **client_files(settings, root),
        # Only for clients in slurmdbd's pod, which test whether slurmdbd responds.
        "slurm.conf": render(
            "dbd-client.conf",
            {
                "cluster_name": settings.cluster_name,
                "auth": settings.auth.type,
                "slurmdbd_port": c.SLURMDBD_PORT,
            },
        ),
        "slurmdbd.conf": render(
            "slurmdbd.conf",
            {
                "slurmdbd_port": c.SLURMDBD_PORT,
                "run": c.DBD_RUN,
                "auth": settings.auth.type,
                "communication": ",".join(COMMUNICATION),
                "token_parameters": token_parameters(settings, c.ACCOUNTING_ETC),
                "database": database,
                "tls_ca": _ca(settings),
                "private_data": sorted(_KEPT_BY_SLURMDBD & {*settings.slurm.private_data}),
                "purges": _purges(accounting),
                "archive": c.DBD_ARCHIVE if accounting.archive else None,
            },
        ),
    }
    if settings.rest.jwks:
        files[JWKS] = read_text("rest.jwks", settings.rest.jwks, root)
    return files


def _purges(accounting: Accounting) -> dict[str, str]:
    """Return the values of slurmdbd.conf for purges, by key."""
    lines: dict[str, str] = {}
    for kind, (purge, archive) in _RECORDS.items():
        age = getattr(accounting.purge, kind)
        if age:
            lines |= {purge: age, archive: "yes" if accounting.archive else "no"}
    return lines


def _ca(settings: Settings) -> str | None:
    return f"{c.ACCOUNTING_ETC}/{_CA}" if settings.accounting.server().tls_ca else None


def client_files(settings: Settings, root: Path) -> dict[str, str]:
    """Return the files that MariaDB's client programs need to connect to the database."""
    database, ca = settings.accounting.server(), _ca(settings)
    options = {
        "host": database.host,
        "port": database.port,
        "user": database.user,
        **({"ssl-ca": ca} if ca else {}),
    }
    lines = (f"{key}={value}\n" for key, value in options.items())
    files = {"client.cnf": "[client]\n" + "".join(lines)}
    if database.tls_ca:
        files[_CA] = read_text("accounting.external.tls_ca", database.tls_ca, root)
    return files


def accounting_lines(settings: Settings) -> dict[str, str]:
    """Return the values of slurm.conf for accounting, by key."""
    accounting = settings.accounting
    if not accounting.enabled:
        # Without slurmdbd, Slurm could not store gathered data.
        return {
            "AccountingStorageType": "accounting_storage/none",
            "JobAcctGatherType": "jobacct_gather/none",
        }
    kept = {"job_script": accounting.store_scripts, "job_env": accounting.store_environments}
    flags = ",".join(flag for flag, chosen in kept.items() if chosen)
    gather = "cgroup" if settings.slurm.confines() else "linux"
    lines = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": c.accounting_address(settings.namespace, settings.cluster.domain),
        "AccountingStoragePort": str(c.SLURMDBD_PORT),
        "AccountingStorageEnforce": ",".join(sorted(settings.enforced())),
        "AccountingStorageTRES": ",".join(settings.tres()),
        "AccountingStoreFlags": flags,
        "JobAcctGatherType": f"jobacct_gather/{gather}",
        "JobAcctGatherFrequency": f"task={accounting.gather_interval}",
    }
    if accounting.energy != "none":
        lines["AcctGatherEnergyType"] = f"acct_gather_energy/{accounting.energy}"
    return {key: value for key, value in lines.items() if value}
