"""Reads Slurm, the jail, and volumes in it.

Slurm is read by its own programs, by one remote procedure call of slurmctld for each table.
"""

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Seconds that the jail's file systems have for an answer."""


class ReadError(Exception):
    """A source could not be asked, or told what cannot be; one line.

    `rest` is what could be read of it all the same.
    """

    def __init__(self, said: str, rest: Sequence[Family] = ()) -> None:
        super().__init__(said)
        self.rest = rest


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
    """The file systems at some paths, by their names: the jail's, and those of volumes in it.

    Of one whose server is gone, whoever asks hangs in the kernel, and may for good. So a thread
    asks, which is left alone then, and there is never a second one for the same path.
    """

    paths: Mapping[str, str]
    ask: Callable[[str], os.statvfs_result] = os.statvfs
    _asking: dict[str, Thread] = field(default_factory=dict, init=False)

    def source(self) -> Source:
        return Source("jail", self._read, is_slurm=False)

    def is_asking(self, name: str) -> bool:
        return name in self._asking and self._asking[name].is_alive()

    def _read(self, seconds: float) -> list[Family]:
        answers: dict[str, os.statvfs_result | OSError] = {}
        asked = [self._begin(name, answers) for name in self.paths if not self.is_asking(name)]
        end = time.monotonic() + min(seconds, PATIENCE)
        for thread in asked:
            thread.join(max(0.0, end - time.monotonic()))
        # One that answers from here on is too late.
        told = dict(answers)
        found = {name: one for name, one in told.items() if not isinstance(one, OSError)}
        families = list(measure.jail({name: found[name] for name in self.paths if name in found}))
        said = [
            f"{path}: {_why_not(told.get(name))}"
            for name, path in self.paths.items()
            if name not in found
        ]
        if said:
            raise ReadError("; ".join(said), families if found else ())
        return families

    def _begin(self, name: str, answers: dict[str, os.statvfs_result | OSError]) -> Thread:
        self._asking[name] = Thread(target=self._answer, args=(name, answers), daemon=True)
        self._asking[name].start()
        return self._asking[name]

    def _answer(self, name: str, answers: dict[str, os.statvfs_result | OSError]) -> None:
        try:
            answers[name] = self.ask(self.paths[name])
        except OSError as error:
            answers[name] = error


def _why_not(answer: object) -> str:
    if isinstance(answer, OSError):
        return str(answer.strerror)
    return "its file system does not answer"


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
