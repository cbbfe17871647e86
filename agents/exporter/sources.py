"""Read Slurm, the jail, and volumes in the jail.

sdiag and the program `snapshot` read Slurm, with one remote procedure call to slurmctld for each
table.
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
from agents.slurm.dataparser import VERSION

SNAPSHOT = "/usr/lib/slurmstack/snapshot"
ENVIRONMENT = {"SLURM_BITSTR_LEN": "0"}
"""Makes Slurm print all tasks of an array, however many holes there are between them."""


PATIENCE = 5.0
"""Time limit for answers of the jail's file systems, in seconds."""


class ReadError(Exception):
    """A source could not be read, or returned something invalid. The text is one line.

    `rest` is the part that could be read.
    """

    def __init__(self, said: str, rest: Sequence[Family] = ()) -> None:
        super().__init__(said)
        self.rest = rest


@dataclass(frozen=True)
class Source:
    """Metrics that are read together."""

    name: str
    read: Callable[[float], list[Family]]
    """Function that reads the present metrics within a time limit in seconds. Raises ReadError."""
    is_slurm: bool = True
    """Whether the source is Slurm."""


@dataclass(frozen=True)
class Slurm:
    """Slurm, as the programs of this pod reach it.

    For `top` and `pairs`, see `measure.cluster`. `snapshot` is a command and its first arguments.
    """

    top: int
    pairs: int
    snapshot: Sequence[str] = (SNAPSHOT,)

    def each_time(self) -> tuple[Source, ...]:
        """Return the sources that are read in every interval, with four calls to slurmctld."""
        return Source("cluster", self._cluster), Source("scheduler", self._scheduler)

    def in_turn(self) -> tuple[Source, ...]:
        """Return the sources that change less. Each interval reads one of them, with one call."""
        return Source("reservations", self._reservations), Source("licenses", self._licenses)

    def _cluster(self, seconds: float) -> list[Family]:
        tables = self._tables(seconds, "nodes", "jobs")
        return list(measure.cluster(tables, time.time(), self.top, self.pairs, user_name))

    def _reservations(self, seconds: float) -> list[Family]:
        return list(measure.reservations(self._tables(seconds, "reservations").reservations))

    def _licenses(self, seconds: float) -> list[Family]:
        return list(measure.licenses(self._tables(seconds, "licenses").licenses))

    def _scheduler(self, seconds: float) -> list[Family]:
        with printed(["sdiag", f"--json={VERSION}"], seconds) as output:
            try:
                diagnosis = _Diagnosis.model_validate_json(output.read())
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(map(str, first["loc"]))
                raise ReadError(f"sdiag: {where}: {first['msg']}") from error
        return list(measure.scheduler(diagnosis.statistics, self.top, user_name))

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
    """File systems at some paths, by name: that of the jail, and those of volumes in it.

    If the server of a file system is gone, a thread that asks for its state hangs in the kernel,
    maybe forever. So each path has a thread of its own, which is then left alone. There is never a
    second thread for the same path.
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
        # Later answers are ignored.
        answered = dict(answers)
        found = {name: one for name, one in answered.items() if not isinstance(one, OSError)}
        families = list(measure.jail({name: found[name] for name in self.paths if name in found}))
        said = [
            f"{path}: {_why_not(answered.get(name))}"
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
    return "file system does not answer"


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def printed(command: Sequence[str], seconds: float) -> Iterator[IO[str]]:
    """Provide what a command has printed, if it has succeeded. Raises ReadError.

    The output goes through a file. For a large cluster it has megabytes, and slurmctld must not
    wait for the exporter.
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
