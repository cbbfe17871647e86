"""Parse the records that the program `snapshot` prints; see images/agents/snapshot.c.

Memory is in bytes, and times are in Unix seconds. All functions are pure.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from agents.containers.counts import Counts, of_extra

MIB = 1 << 20


class UnexpectedError(Exception):
    """Slurm's output has an unexpected format. The message is one line."""


@dataclass(frozen=True, slots=True)
class Job:
    """Job, or all tasks of an array that have not started yet."""

    state: str
    """State in squeue's format, such as PENDING."""
    reason: str
    partitions: tuple[str, ...]
    """A pending job may be in several partitions."""
    account: str
    uid: int
    tasks: int
    """Number of tasks in this record. The next fields describe one task."""
    eligible: int
    """Time when the job became eligible, or 0 if it is held or waits for other jobs."""
    cpus: int
    memory: int
    gpus: int
    """Number of GPUs, if Slurm accounts for GPUs."""
    node: str
    """First node of the job, or "" before its start."""
    id: str
    """Id of a running job in squeue's format, such as 17 or 17_3, or "" for other jobs."""
    nodes: str
    """Nodes of a running job, in the format that `hosts` reads, or "" for other jobs."""
    start: int
    """Start of the job. For a pending job, the start that Slurm expects, or 0."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    states: frozenset[str]
    """The base state and its flags, such as IDLE and DRAIN."""
    partitions: tuple[str, ...]
    cpus: int
    """CPUs that jobs can use."""
    cpus_of_jobs: int
    memory: int
    memory_of_jobs: int
    memory_free: int | None
    """Free memory in the node's last report, or None before its first report."""
    load: float | None
    gpus: Mapping[str, int]
    """Number of GPUs by type. The type is "" for GPUs without a type."""
    gpus_of_jobs: Mapping[str, int]
    accounts_gpus: bool
    """Whether Slurm accounts for the node's GPUs."""
    reason: str
    since: int
    """Time when the reason was set."""
    machine: str
    """Kubernetes node on which slurmd started (its InstanceId), or "" if slurmd has not reported
    it."""
    images: Counts | None
    """Counts of image imports, cache hits and failures on the node. None before the first report of
    the node's checks."""


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str
    nodes: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class License:
    name: str
    total: int
    used: int
    free: int
    reserved: int


@dataclass(frozen=True)
class Tables:
    jobs: list[Job] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    licenses: list[License] = field(default_factory=list)


def parse(lines: Iterable[str]) -> Tables:
    """Parse lines, each with its line end, into tables. Raises UnexpectedError."""
    tables = Tables()
    adders: Mapping[str, Callable[..., None]] = {
        "job": lambda *row: tables.jobs.append(_job(row)),
        "node": lambda *row: tables.nodes.append(_node(row)),
        "partition": lambda name, state: tables.partitions.append(Partition(name, state)),
        "reservation": lambda name, *numbers: tables.reservations.append(
            Reservation(name, *map(int, numbers))
        ),
        "license": lambda name, *numbers: tables.licenses.append(License(name, *map(int, numbers))),
    }
    for line in lines:
        kind, *row = line.rstrip("\n").split("\t")
        try:
            adders[kind](*row)
        except (KeyError, TypeError, ValueError) as error:
            # Do not show the record itself, because it may contain names that must not be in logs.
            raise UnexpectedError(
                f"cannot parse a record {kind[:20]!r} with {len(row)} columns; the versions "
                "of Slurm and the exporter do not match: build and deploy all images again "
                "with `make up`"
            ) from error
    return tables


def _job(row: Sequence[str]) -> Job:
    (
        state,
        reason,
        partitions,
        account,
        uid,
        tasks,
        eligible,
        cpus,
        tres,
        node,
        id_,
        nodes,
        start,
    ) = row
    amounts = _tres(tres)
    return Job(
        state,
        reason,
        _names(partitions),
        account,
        int(uid),
        task_count(tasks),
        int(eligible),
        int(cpus),
        amounts["mem"],
        amounts["gres/gpu"],
        node,
        id_,
        _hostlist(nodes),
        int(start),
    )


def _node(row: Sequence[str]) -> Node:
    (
        name,
        states,
        partitions,
        cpus,
        cpus_of_jobs,
        memory,
        memory_of_jobs,
        memory_free,
        load,
        gres,
        gres_of_jobs,
        tres,
        reason,
        since,
        machine,
        extra,
    ) = row
    return Node(
        name,
        _flags(states),
        _names(partitions),
        int(cpus),
        int(cpus_of_jobs),
        int(memory) * MIB,
        int(memory_of_jobs) * MIB,
        int(memory_free) * MIB if memory_free else None,
        int(load) / 100 if load else None,
        gpus(gres),
        gpus(gres_of_jobs),
        "gres/gpu=" in tres,
        reason,
        int(since),
        machine,
        of_extra(extra),
    )


# --- Values, cached because a table contains few different values --------------------------------


@lru_cache(maxsize=4096)
def _names(value: str) -> tuple[str, ...]:
    return tuple(value.split(",")) if value else ()


@lru_cache(maxsize=4096)
def _flags(value: str) -> frozenset[str]:
    return frozenset(value.split("+"))


_RANGES = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_HOSTS = rf"([^\[\],]+)(?:\[({_RANGES})\])?"
_HOSTLIST = re.compile(rf"(?:{_HOSTS}(?:,{_HOSTS})*)?")


@lru_cache(maxsize=4096)
def _hostlist(value: str) -> str:
    if not _HOSTLIST.fullmatch(value):
        raise ValueError(value)
    return value


def hosts(expression: str) -> Iterator[str]:
    """Yield the nodes of a list such as `gpu-[0-3,7],login`.

    In the node lists of jobs, brackets are always at the end of a name.
    """
    for prefix, ranges in re.findall(_HOSTS, expression):
        if not ranges:
            yield prefix
        for part in filter(None, ranges.split(",")):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield f"{prefix}{number:0{len(first)}d}"


_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


@lru_cache(maxsize=4096)
def task_count(tasks: str) -> int:
    """Return the number of tasks in a list such as `0-9,15%3`, or 1 for ""."""
    count = 0
    for part in tasks.partition("%")[0].split(",") if tasks else ():
        if not (found := _RANGE.fullmatch(part)):
            raise ValueError(part)
        first, last, step = found.groups()
        count += 1 if last is None else (int(last) - int(first)) // int(step or 1) + 1
    return count or 1


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_AMOUNT = re.compile(r"([\d.]+)([KMGTP]?)")


@lru_cache(maxsize=4096)
def _tres(value: str) -> Mapping[str, int]:
    """Return the bytes of memory and the GPUs in a TRES list.

    An example is `cpu=2,mem=1000M,node=1,gres/gpu=1,gres/gpu:h100=1`.
    """
    amounts = {"mem": 0, "gres/gpu": 0}
    for part in _names(value):
        key, _, amount = part.partition("=")
        if key in amounts:
            found = _AMOUNT.fullmatch(amount)
            if not found:
                raise ValueError(part)
            amounts[key] = round(float(found[1]) * _UNITS[found[2]])
    return amounts


_GRES = re.compile(r"(?:^|,)gpu(?::([^:(,]+))?:(\d+)")


@lru_cache(maxsize=4096)
def gpus(gres: str) -> Mapping[str, int]:
    """Return the GPUs by type in `gpu:h100:8(S:0-1),shard:32` or `gpu:2(IDX:0,3)`.

    In Slurm, a MIG slice is a GPU with its own type.
    """
    found: dict[str, int] = {}
    for type_, number in _GRES.findall(gres):
        found[type_] = found.get(type_, 0) + int(number)
    return MappingProxyType(found)
