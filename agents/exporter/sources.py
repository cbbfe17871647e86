"""Reads Slurm and the jail.

Slurm is read by its own programs, by one remote procedure call of slurmctld for each table.
"""

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import IO

from prometheus_client.metrics_core import Metric as Family
from pydantic import BaseModel, ValidationError

from agents.exporter import measure
from agents.exporter.rows import Tables, UnexpectedError, parse
from agents.slurm import Statistics
from agents.slurm.dataparser import VERSIONS

SNAPSHOT = "/usr/lib/slurmstack/snapshot"
ENVIRONMENT = {"SLURM_BITSTR_LEN": "0"}
"""So that the tasks of an array are told whole, however many holes there are between them."""


PATIENCE = 5.0
"""Seconds that the jail's file system has for an answer."""


class ReadError(Exception):
    """A source could not be asked, or told what cannot be; one line."""


@dataclass(frozen=True)
class Source:
    """A part of what is shown that is read as one."""

    name: str
    read: Callable[[float], list[Family]]
    """The metrics of now, read within so many seconds. Raises ReadError."""
    is_slurm: bool = True
    """Whether it is Slurm that is asked."""


@dataclass(frozen=True)
class Slurm:
    """Slurm as this pod's programs reach it.

    `top`, `pairs`: see `measure.cluster`. `snapshot` is a command and its first arguments.
    """

    top: int
    pairs: int
    snapshot: Sequence[str] = (SNAPSHOT,)

    def each_time(self) -> tuple[Source, ...]:
        """What is read in every interval, by four calls of slurmctld."""
        return Source("cluster", self._cluster), Source("scheduler", self._scheduler)

    def in_turn(self) -> tuple[Source, ...]:
        """Of what changes less, one is read in each interval, by one call."""
        return Source("reservations", self._reservations), Source("licenses", self._licenses)

    def _cluster(self, seconds: float) -> list[Family]:
        tables = self._tables(seconds, "nodes", "jobs")
        return list(measure.cluster(tables, time.time(), self.top, self.pairs, user_name))

    def _reservations(self, seconds: float) -> list[Family]:
        return list(measure.reservations(self._tables(seconds, "reservations").reservations))

    def _licenses(self, seconds: float) -> list[Family]:
        return list(measure.licenses(self._tables(seconds, "licenses").licenses))

    def _scheduler(self, seconds: float) -> list[Family]:
        with printed(["sdiag", f"--json={VERSIONS[0]}"], seconds) as output:
            try:
                told = _Diagnosis.model_validate_json(output.read())
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(map(str, first["loc"]))
                raise ReadError(f"sdiag: {where}: {first['msg']}") from error
        return list(measure.scheduler(told.statistics, self.top, user_name))

    def _tables(self, seconds: float, *names: str) -> Tables:
        with printed([*self.snapshot, *names], seconds) as output:
            try:
                return parse(output)
            except UnexpectedError as error:
                raise ReadError(f"snapshot: {error}") from error


class _Diagnosis(BaseModel):
    statistics: Statistics


@dataclass
class Jail:
    """The file system at a path, the jail's.

    Of one whose server is gone, whoever asks hangs in the kernel, and may for good. So a thread
    asks, which is left alone then, and there is never a second one.
    """

    path: str
    ask: Callable[[str], os.statvfs_result] = os.statvfs
    _asking: Thread | None = field(default=None, init=False)

    def source(self) -> Source:
        return Source("jail", self._read, is_slurm=False)

    def is_asking(self) -> bool:
        return self._asking is not None and self._asking.is_alive()

    def _read(self, seconds: float) -> list[Family]:
        answers: list[os.statvfs_result | OSError] = []
        if not self.is_asking():
            self._asking = Thread(target=self._answer, args=(answers,), daemon=True)
            self._asking.start()
            self._asking.join(min(seconds, PATIENCE))
        if not answers:
            raise ReadError(f"{self.path}: its file system does not answer")
        (answer,) = answers
        if isinstance(answer, OSError):
            raise ReadError(f"{self.path}: {answer.strerror}") from answer
        return list(measure.jail(answer))

    def _answer(self, answers: list[os.statvfs_result | OSError]) -> None:
        try:
            answers.append(self.ask(self.path))
        except OSError as error:
            answers.append(error)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def printed(command: Sequence[str], seconds: float) -> Iterator[IO[str]]:
    """What a command prints, once it has ended well. Raises ReadError.

    It goes through a file: of a large cluster it is megabytes, and slurmctld is not to wait for us.
    """
    name = command[0].rpartition("/")[2]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.PIPE,
                timeout=seconds,
                env=os.environ | ENVIRONMENT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ReadError(f"{name}: no answer within {seconds:g} s") from None
        except OSError as error:
            raise ReadError(f"{name}: {error.strerror}") from None
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split())
            raise ReadError(f"{name}: {said[:300] or f'exit code {done.returncode}'}")
        output.seek(0)
        yield output
