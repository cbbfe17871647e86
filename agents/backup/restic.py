"""Run restic on the store of backups, which is a restic repository on a volume or in a bucket.

Environment variables: RESTIC_REPOSITORY (the store's address), CLUSTER (the host name of this
cluster's backups in the store), KEEP (options of restic-forget(1), which select the backups to
keep). Files contain the credentials: restic gets them as environment variables, which only its own
user can read.

The variable ROOT is a folder to which restic is confined with chroot(2), if it reads files of
users. A user who replaces a directory by a symbolic link while restic reads it could otherwise put
any file of this container into the user's own backup. The folder has a copy of restic
(images/backup).
"""

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

ETC: Final = Path("/etc/slurmstack")
RUN: Final = "run/backup"
"""Volume in memory for files that restic or MariaDB's programs read, relative to their root."""
SECRETS: Final = {
    "RESTIC_PASSWORD": "backup_password/password",
    "AWS_ACCESS_KEY_ID": "backup_s3/access_key",
    "AWS_SECRET_ACCESS_KEY": "backup_s3/secret_key",
}
"""Environment variables of restic with credentials, and the files in `ETC` with their values."""
LOCKED: Final = 11
"""restic's exit code if another run has locked the store."""
UNREADABLE: Final = 3
"""restic's exit code for a backup without some of the files, which it could not read."""
PATIENCE: Final = 20
"""Seconds in which the store must respond. restic itself retries for a quarter of an hour."""
_PAUSE: Final = 60
"""Seconds between two attempts to lock the store."""
_RESOLVING: Final = ("hosts", "resolv.conf")
"""Files of /etc with which programs resolve host names."""
_DAY: Final = 24 * 3600
_STALL: Final = 900
"""Seconds after which a run without progress is killed. A user can replace a file by a FIFO after
restic has read the file's type; restic then waits forever until somebody writes to the FIFO."""
_LEAST_IO: Final = 1 << 20
"""Bytes that a run with progress reads or writes within `_STALL`. restic writes less than this to
refresh its lock."""
_LEAST_CPU: Final = 1.0
"""Seconds of CPU time that a run with progress uses within `_STALL`."""
_LONGEST: Final = 1 << 26
"""Bytes of restic's output that are read."""
_FATAL = re.compile(r"^(?:Fatal: )+(.*)")
_REASONS = (
    re.compile(r"^subprocess \S+: (.*)"),
    re.compile(r".* returned error, retrying after [^:]*: (.*)"),
    re.compile(r"^Save\(.*\) failed: (.*)"),
    _FATAL,
)


class BackupError(Exception):
    """A backup or a restore failed. The message is one line for people."""


def reason(said: str) -> str:
    """Return the first error that restic, or a program that it started, reported."""
    for line in said.splitlines():
        if line.startswith("{"):
            reported = _parsed(line)
            if reported.get("message_type") == "exit_error":
                text = str(reported.get("message", "")).splitlines()[0]
                return _FATAL.sub(r"\1", text)
        for pattern in _REASONS:
            if found := pattern.match(line):
                return found[1]
    return ""


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Done:
    """A run of restic that has ended."""

    code: int
    output: str
    said: str
    """Text that restic wrote to stderr."""
    stalled: bool = False

    @property
    def reason(self) -> str:
        if self.stalled:
            return f"restic made no progress for {_STALL // 60} minutes, so it was ended"
        return reason(self.said) or reason(self.output) or f"restic: exit code {self.code}"

    def messages(self, kind: str) -> list[dict[str, Any]]:
        """Return restic's messages of one kind. They are lines of JSON."""
        lines = (self.output + self.said).splitlines()
        parsed = (_parsed(line) for line in lines if line.startswith("{"))
        return [one for one in parsed if one.get("message_type") == kind]


class Restic:
    """restic with the options and the credentials for one store."""

    def __init__(self, environment: Mapping[str, str], etc: Path = ETC) -> None:
        self._environment = environment
        self._etc = etc
        self.repository = environment["RESTIC_REPOSITORY"]
        self.cluster = environment["CLUSTER"]
        self.keep = tuple(environment.get("KEEP", "").split())
        self.root = Path(environment.get("ROOT", "/"))
        """Folder to which restic is confined."""

    def prepare(self) -> None:
        """Put the files that a confined restic needs below its root."""
        run = self.root / RUN
        certificates = self._etc / "accounting/store-ca.pem"
        (run / "store-ca.pem").unlink(missing_ok=True)
        if certificates.exists():
            shutil.copyfile(certificates, run / "store-ca.pem")
        if self.root != Path("/"):
            for name in _RESOLVING:
                shutil.copyfile(Path("/etc") / name, run / name)

    def command(self, *arguments: str) -> list[str]:
        confined = () if self.root == Path("/") else ("chroot", str(self.root))
        secret = () if "RESTIC_PASSWORD" in self._secrets() else ("--insecure-no-password",)
        trusted = self.root / RUN / "store-ca.pem"
        certificates = ("--cacert", f"/{RUN}/store-ca.pem") if trusted.exists() else ()
        return [*confined, "restic", "--no-cache", "--quiet", *secret, *certificates, *arguments]

    def environment(self) -> dict[str, str]:
        return {**self._environment, **self._secrets()}

    def _secrets(self) -> dict[str, str]:
        return {
            name: (self._etc / path).read_text(encoding="utf-8-sig").strip()
            for name, path in SECRETS.items()
            if (self._etc / path).exists()
        }

    def once(
        self,
        *arguments: str,
        watch: Callable[[str], None] = lambda said: None,
        timeout: float = math.inf,
    ) -> Done:
        """Run restic once. After `timeout` seconds, the run counts as failed.

        Each second, `watch` gets the text that restic has written to stderr.
        """
        began = time.monotonic()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as said:
            running = subprocess.Popen(
                self.command(*arguments),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=said,
            )
            progress = Progress(running.pid)
            while (code := _ended(running)) is None:
                watch(_content(said))
                if time.monotonic() - began > timeout or progress.has_stalled():
                    running.kill()
            return Done(code, _content(output), _content(said), progress.stalled)

    def run(self, *arguments: str, watch: Callable[[str], None] = lambda said: None) -> Done:
        """Run restic. While another run has locked the store, wait for that run.

        `unlock` removes the lock of a killed run after half an hour.
        """
        done, attempts = self.once(*arguments, watch=watch), 0
        while done.code == LOCKED:
            if attempts == 1:
                print("another run uses the store: waiting for it", file=sys.stderr, flush=True)
            if attempts:
                time.sleep(_PAUSE)
            attempts += 1
            self.once("unlock")
            done = self.once(*arguments, watch=watch)
        return done

    def open(self) -> None:
        """Create the repository if it does not exist. Raises BackupError.

        Do this first: if the store is unreachable, `init` fails at once, but other commands retry
        for a quarter of an hour.
        """
        self.prepare()
        done = self.run("init")
        exists = re.search("already (exists|initialized)", done.said + done.output)
        if done.code != 0 and not exists:
            raise BackupError(f"cannot open the store {self.repository}: {done.reason}")
        self._remove_leftovers()

    def check_reachable(self) -> None:
        """Raise BackupError if the store does not respond, or has no repository."""
        self.prepare()
        done = self.once("--no-lock", "cat", "config", timeout=PATIENCE)
        if done.code != 0:
            raise BackupError(f"cannot open the store {self.repository}: {done.reason}")

    def _remove_leftovers(self) -> None:
        """Remove temporary files of killed runs that are older than a day, because restic does not
        remove them."""
        folder = self.root / self.repository.lstrip("/")
        if not self.repository.startswith("/"):
            return
        for path in folder.rglob("*-tmp-*"):
            with contextlib.suppress(FileNotFoundError):  # another run may rename the file
                if time.time() - path.stat().st_mtime > _DAY:
                    path.unlink()

    def snapshots(self) -> list["Snapshot"]:
        """Return this cluster's snapshots, oldest first. Raises BackupError."""
        done = self.once("--no-lock", "snapshots", "--host", self.cluster, "--json")
        if done.code != 0:
            raise BackupError(f"cannot read the store {self.repository}: {done.reason}")
        return sorted(map(_snapshot, json.loads(done.output or "[]")), key=lambda one: one.time)

    def has(self, snapshot: str) -> bool:
        """Return whether the store has this snapshot of the cluster: an id, or `latest`."""
        wanted = ("snapshots", "--host", self.cluster, "--json", snapshot)
        return '"id"' in self.once("--no-lock", *wanted).output

    def forget(self, snapshots: Iterable[str]) -> None:
        """Remove snapshots by their ids, but not yet their data. Raises BackupError."""
        listed = sorted(snapshots)
        if listed and (done := self.run("forget", *listed)).code != 0:
            raise BackupError(f"old backups cannot be removed: {done.reason}")


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of restic's repository."""

    id: str
    time: str
    """Moment in UTC, such as 2026-12-01T01:47:00.123456789Z."""
    tags: frozenset[str]


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    return Snapshot(found["id"], found["time"], frozenset(found.get("tags") or ()))


class Progress:
    """Notices whether a process still works."""

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._clock = clock
        self._since = clock()
        self._used = self._usage()
        self.stalled = False

    def has_stalled(self) -> bool:
        """Return whether the process has done nothing for a long time."""
        io, cpu = self._usage()
        if io - self._used[0] >= _LEAST_IO or cpu - self._used[1] >= _LEAST_CPU:
            self._since, self._used = self._clock(), (io, cpu)
        self.stalled = self.stalled or self._clock() - self._since > _STALL
        return self.stalled

    def _usage(self) -> tuple[int, float]:
        """Return the bytes that the process has read and written, and its CPU time in seconds."""
        try:
            io = dict(line.split(": ") for line in (self._folder / "io").read_text().splitlines())
            fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            return 0, 0.0
        ticks = int(fields[11]) + int(fields[12])  # utime and stime, proc_pid_stat(5)
        return int(io["rchar"]) + int(io["wchar"]), ticks / os.sysconf("SC_CLK_TCK")


def _ended(running: subprocess.Popen[bytes]) -> int | None:
    """Wait for up to a second, and return the exit code if the process has ended."""
    try:
        return running.wait(1)
    except subprocess.TimeoutExpired:
        return None


def _content(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), _LONGEST, 0).decode(errors="replace")


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
