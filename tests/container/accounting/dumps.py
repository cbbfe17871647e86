"""A backup container, which dumps and restores the database, with the configuration of a stack."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components import conventions as c
from components.settings import Settings
from components.slurmconf import dump_environment, dump_files
from tests.support import open_shells
from tests.support.accounting import PASSWORD, Database, accounted
from tests.support.containers import Start, put
from tests.support.slurmctld import Slurmctld

_OWN = f"uid={c.SLURM_ID},gid={c.SLURM_ID},mode=0700"


@dataclass(frozen=True)
class Dumps:
    """A backup container with the store of dumps. It runs one program at a time."""

    container: Slurmctld
    config: Settings

    def environment(self, **changes: str) -> dict[str, str]:
        return {**dump_environment(self.config), **changes}

    def run(self, program: str = "backup", **environment: str) -> tuple[int, str]:
        """Run a program, and return its exit code and output."""
        variables = self.environment(**environment)
        code, output = open_shells.run(
            self.container.container,
            f"python3 -m agents.backup {program}",
            "slurm",
            environment=variables,
        )
        return code, output.strip()

    def begin(self, program: str = "backup", **environment: str) -> None:
        """Start a program without waiting for it."""
        self.container.container.exec_run(
            ["bash", "-c", f"exec python3 -m agents.backup {program} >/tmp/log 2>&1"],
            user="slurm",
            environment=self.environment(**environment),
            detach=True,
        )

    def kill(self) -> None:
        """Kill all running programs."""
        names = ("python3", "restic", "mariadb-dump", "mariadb")
        kill = "; ".join(f"pkill -KILL -u slurm -x {name}" for name in names)
        self.container.run(f"{kill}; true", "root")

    def dump(self) -> str:
        """Create a dump, and return its name."""
        code, output = self.run()
        assert code == 0, output
        return output.split()[2]

    def names(self) -> list[str]:
        """Return the names of the dumps in the store, oldest first."""
        listed = self.restic("snapshots --compact")
        rows = [line.split() for line in listed.splitlines()]
        return [row[0] for row in rows if row and len(row[0]) == 8 and row[-1] != "snapshots"]

    def restic(self, command: str) -> str:
        full_command = f"restic --insecure-no-password --no-cache --no-lock {command}"
        code, text = open_shells.run(
            self.container.container, full_command, "slurm", environment=self.environment()
        )
        assert code == 0, text
        return text


def dumping(
    start: Start,
    database: Database | str,
    edit: Callable[[dict[str, Any]], object] = lambda backup: None,
    password: str = PASSWORD,
    root: Path = Path(),
    **options: Any,
) -> Dumps:
    """Start a backup container. `database` is the database or its host name."""
    host = database if isinstance(database, str) else database.container.address
    backup: dict[str, Any] = {}
    edit(backup)
    external = {"host": host, "password_secret": "slurmdbd"}
    config = accounted(
        lambda values: values.update(accounting={"external": external, "backup": backup})
    )
    tmpfs = {c.BACKUP_RUN: _OWN, **options.pop("tmpfs", {c.BACKUP_DATA: _OWN})}
    container = start("backup", tmpfs=tmpfs, entrypoint="", **options)
    files = {f"{c.ACCOUNTING_ETC}/{k}": v for k, v in dump_files(config, root).items()}
    put(container, {**files, f"{c.DATABASE_PASSWORD}/password": password})
    return Dumps(Slurmctld(container), config)


def small(mebibytes: int) -> dict[str, str]:
    """Return mount options for a store of `mebibytes` MiB."""
    return {c.BACKUP_DATA: f"{_OWN},size={mebibytes}m"}
