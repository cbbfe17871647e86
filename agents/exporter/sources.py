"""Sources of the exporter's metrics: Slurm, the jail, and the volumes in the jail.

The jail is the root file system of users' sessions and jobs. The programs sdiag and `snapshot` read
Slurm. For each table, they send one remote procedure call to slurmctld.
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
"""With this variable, Slurm's programs print all tasks of an array, instead of a shortened list."""


PATIENCE = 5.0
"""Time limit in seconds for answers of the jail's file systems."""


class ReadError(Exception):
    """A source was unreadable or returned invalid data. The message is one line.

    `rest` contains the metrics that could be read.
    """

    def __init__(self, said: str, rest: Sequence[Family] = ()) -> None:
        super().__init__(said)
        self.rest = rest


@dataclass(frozen=True)
class Source:
    """Source of metrics that are read together."""

    name: str
    read: Callable[[float], list[Family]]
    """Function that reads the metrics within a time limit in seconds. Raises ReadError."""
    is_slurm: bool = True


@dataclass(frozen=True)
class Slurm:
    """Slurm, read with commands in this pod.

    For `top` and `pairs`, see `measure.cluster`. `snapshot` is a command with its first arguments.
    """

    top: int
    pairs: int
    snapshot: Sequence[str] = (SNAPSHOT,)

    def each_time(self) -> tuple[Source, ...]:
        """Return the sources to read in every interval, with four calls to slurmctld."""
        return Source("cluster", self._cluster), Source("scheduler", self._scheduler)

    def in_turn(self) -> tuple[Source, ...]:
        """Return the sources that change rarely. In each interval, the exporter reads one of them,
        with one call to slurmctld."""
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
                raise ReadError(
                    f"sdiag: {where}: {first['msg'].lower()}; the versions of Slurm and the "
                    "exporter do not match: build and deploy all images again with `make up`"
                ) from error
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
    """File systems of the jail and of its volumes, by name.

    If the server of a file system is gone, the thread that reads it may hang in the kernel forever.
    So each path has its own thread. While a thread hangs, no second thread starts for its path.
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
        # Copy the answers, because a thread that still runs may add its answer at any moment.
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
    return "the file system does not answer; check the server of this file system"


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def printed(command: Sequence[str], seconds: float) -> Iterator[IO[str]]:
    """Run a command, and provide its output as a file. Raises ReadError if the command fails.

    The output goes to a file, because it has megabytes on a large cluster. With a pipe, slurmctld
    could have to wait until the exporter has read the output.
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
