"""Dump the accounting database into the store, and load a dump into an empty database.

Environment variables: DATABASE (name of the database), and those of `agents.backup.restic`. The
password is only in files.
"""

import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from agents.backup.restic import ETC, RUN, SECRETS, BackupError, Done, Restic

MARK: Final = "slurmstack_restore"
"""Table that marks an incomplete load. While it exists, slurmdbd does not start."""
_COMPLETE = b"-- Dump completed"
_PACKET: Final = "--max-allowed-packet=1G"
_PAUSE: Final = 2
"""Seconds between two attempts to connect to the database."""


class Database:
    """MariaDB's client programs for one database."""

    def __init__(self, name: str, etc: Path = ETC, run: Path = Path("/") / RUN) -> None:
        self.name = name
        self.file = f"{name}.sql"
        """Name of the dump in the store."""
        self._options = run / "client.cnf"
        password = (etc / "database_password/password").read_text().rstrip("\n")
        options = (etc / "accounting/client.cnf").read_text()
        self._options.touch(0o600)
        self._options.write_text(f"{options}password={password}\n")

    def dumping(self) -> list[str]:
        """Return the command that writes a dump to stdout.

        `--single-transaction` makes the dump consistent without locks. By default, mariadb-dump
        does not dump stored procedures. They are not needed, because slurmdbd creates them at each
        start.
        """
        return [
            # restic starts this command with its own credentials in the environment.
            *("env", *(f"--unset={name}" for name in SECRETS)),
            *("mariadb-dump", f"--defaults-file={self._options}", "--single-transaction"),
            *("--quick", "--no-tablespaces", "--skip-add-locks", "--hex-blob"),
            *("--default-character-set=utf8mb4", _PACKET, self.name),
        ]

    def loading(self) -> list[str]:
        """Return the command that executes the SQL commands that it reads from stdin."""
        return ["mariadb", f"--defaults-file={self._options}", "--connect-timeout=5", _PACKET]

    def sql(self, query: str) -> str:
        """Raises BackupError."""
        done = subprocess.run(
            [*self.loading(), "--skip-column-names", f"--execute={query}"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            raise BackupError(done.stderr.strip())
        return done.stdout.strip()

    def wait(self) -> None:
        """Wait until the database responds."""
        reported = ""
        while True:
            try:
                self.sql("SELECT 1")
            except BackupError as error:
                if str(error) != reported:
                    reported = str(error)
                    print(f"waiting for the database: {reported}", flush=True)
                time.sleep(_PAUSE)
            else:
                return

    def tables(self, name: str = "%") -> int:
        """Return the number of tables with this name. Raises BackupError."""
        schema = f"table_schema = '{self.name}' AND table_name LIKE '{name}'"
        query = f"SELECT COUNT(*) FROM information_schema.tables WHERE {schema}"  # noqa: S608
        return int(self.sql(query))


def dump(restic: Restic, database: Database, tags: Sequence[str] = ()) -> str:
    """Dump the database, and read the dump back. Return a line about the dump.

    Raises BackupError.
    """
    tagged = ("--tag", ",".join(tags)) if tags else ()
    done = _dumped(restic, database, tagged)
    if done.code != 0:
        why = done.reason
        if "no space left" in why and not tags:
            # Free the space of the incomplete dump, and of old dumps if an operator has lowered
            # the number of dumps to keep.
            thin(restic, "--max-repack-size", "0")
        raise BackupError(f"cannot dump {database.name}: {why}")
    summary = done.messages("summary")[0]
    snapshot = str(summary["snapshot_id"])[:8]
    _read_back(restic, database, snapshot)
    kibibytes = summary["total_bytes_processed"] // 1024
    return f"dump {snapshot} of {database.name}, {kibibytes} KiB"


def _dumped(restic: Restic, database: Database, tagged: Sequence[str]) -> Done:
    """Run the dump. While another run has locked the store, wait for that run."""
    arguments = [
        *("--json", "backup", "--host", restic.cluster, *tagged),
        *("--stdin-filename", database.file, "--stdin-from-command", "--", *database.dumping()),
    ]
    return restic.run(*arguments, watch=_end_if_unsaved)


def _end_if_unsaved(said: str) -> None:
    """End mariadb-dump if restic could not save a part of the dump.

    After a failed write, restic 0.18 may deadlock: restic waits for mariadb-dump, and mariadb-dump
    waits until restic reads its output.
    """
    if re.search(r"^Save\(.*failed:", said, re.MULTILINE):
        time.sleep(2)
        subprocess.run(["pkill", "-x", "mariadb-dump"], check=False)


def _read_back(restic: Restic, database: Database, snapshot: str) -> None:
    """Read a dump to its end. If that fails, remove the dump and raise BackupError."""
    with tempfile.TemporaryFile() as said:
        end = b""
        # Lock the store, so that no other run moves data while this one reads.
        with _reading(restic, database, snapshot, said, "--retry-lock=1h") as reading:
            for chunk in iter(lambda: _output(reading).read(1 << 20), b""):
                end = (end + chunk)[-4096:]
        code = reading.returncode
        lines = end.splitlines() or [b""]
        if code == 0 and lines[-1].startswith(_COMPLETE):
            return
        said.seek(0)
        why = Done(code, "", said.read().decode(errors="replace"))
    restic.run("forget", snapshot)
    raise BackupError(
        f"cannot read back the dump of {database.name}: "
        f"{why.reason if code else 'its end is missing'}; run the backup again"
    )


def _reading(
    restic: Restic, database: Database, snapshot: str, said: IO[bytes], lock: str
) -> subprocess.Popen[bytes]:
    """Start restic, which writes a dump to its stdout."""
    wanted = (lock, "dump", "--host", restic.cluster, snapshot)
    return subprocess.Popen(
        restic.command(*wanted, f"/{database.file}"),
        env=restic.environment(),
        stdout=subprocess.PIPE,
        stderr=said,
    )


def _output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None  # noqa: S101  # every caller has requested a pipe
    return process.stdout


def thin(restic: Restic, *options: str) -> Done:
    """Remove the dumps that the settings do not keep, and their data."""
    chosen = ("--host", restic.cluster, "--group-by", "host", *restic.keep)
    return restic.run("forget", *chosen, "--prune", *options)


def load(restic: Restic, database: Database, find: Callable[[], str]) -> str:
    """Load a dump into the database if the database has no tables yet. Return a line about it.

    `find` returns the dump's id in the store; it raises BackupError if there is none. Raises
    BackupError.
    """
    database.wait()
    marks, tables = database.tables(MARK), database.tables()
    if not marks and tables:
        return f"database {database.name} already has tables, so no dump is loaded"
    restic.check_reachable()
    snapshot = find()
    if marks:
        print("restore: the last load was interrupted: loading the dump again", flush=True)
        database.sql(f"DROP DATABASE `{database.name}`")
    database.sql(f"CREATE DATABASE IF NOT EXISTS `{database.name}`")
    database.sql(f"CREATE TABLE `{database.name}`.{MARK} (moment INT)")
    _pour(restic, database, snapshot)
    database.sql(f"DROP TABLE `{database.name}`.{MARK}")
    return f"loaded dump '{snapshot}' into {database.name}"


def find(restic: Restic, wanted: str) -> str:
    """Return a dump by its name, or `latest`, if the store has it. Raises BackupError."""
    if restic.has(wanted):
        return wanted
    raise BackupError(
        f"no dump '{wanted}' of {restic.cluster} in {restic.repository}: correct "
        "'accounting.backup.restore'"
    )


def _pour(restic: Restic, database: Database, snapshot: str) -> None:
    """Send a dump from the store to the database. Raises BackupError."""
    with tempfile.TemporaryFile() as said:
        with _reading(restic, database, snapshot, said, "--no-lock") as reading:
            loaded = subprocess.run(
                [*database.loading(), f"--database={database.name}"],
                stdin=_output(reading),
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                check=False,
            )
        code = reading.returncode
        said.seek(0)
        why = Done(code, "", said.read().decode(errors="replace"))
    if loaded.returncode != 0:
        first = (loaded.stderr.strip() or "the database refused it").splitlines()[0]
        raise BackupError(f"cannot load {database.name}: {first}")
    if code != 0:
        raise BackupError(f"cannot load {database.name}: {why.reason}")


def listed(restic: Restic) -> str:
    """Return a table of all dumps, for an operator."""
    done = restic.run("snapshots", "--host", restic.cluster, "--compact")
    return done.output if done.code == 0 else f"(cannot list the dumps: {done.reason})"
