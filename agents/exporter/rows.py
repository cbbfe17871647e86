"""Records of Slurm's tables, as the program `snapshot` prints them: see images/agents/snapshot.c.

Memory is in bytes and times are Unix seconds. All functions are pure.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from agents.containers.counts import Counts, of_extra

MIB = 1 << 20


class UnexpectedError(Exception):
    """Slurm's output has an unexpected form. The text is one line."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or all tasks of an array that have not begun yet."""

    state: str
    """State as in squeue, such as PENDING."""
    reason: str
    partitions: tuple[str, ...]
    """A pending job may be in several."""
    account: str
    uid: int
    tasks: int
    """Number of tasks that it stands for. The next fields are those of each task."""
    eligible: int
    """When it became eligible; 0 if it may not begin, because it is held or waits for other
    jobs."""
    cpus: int
    memory: int
    gpus: int
    """GPUs, if Slurm accounts for them."""
    node: str
    """First of its nodes; "" before it begins."""
    id: str
    """Id as in squeue and sacct, such as 17 or 17_3; "" unless it runs."""
    nodes: str
    """Nodes that it runs on, in the format that `hosts` reads; "" unless it runs."""
    start: int
    """When it began. For a pending job, when Slurm expects it to begin, or 0 if it does not."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    states: frozenset[str]
    """The base state and its flags, such as IDLE and DRAIN."""
    partitions: tuple[str, ...]
    cpus: int
    """CPUs that jobs may have."""
    cpus_of_jobs: int
    memory: int
    memory_of_jobs: int
    memory_free: int | None
    """As last reported by the node; None before its first report."""
    load: float | None
    gpus: Mapping[str, int]
    """GPUs by type; "" for those without a type."""
    gpus_of_jobs: Mapping[str, int]
    accounts_gpus: bool
    """Whether Slurm accounts for the node's GPUs."""
    reason: str
    since: int
    """When the reason was set."""
    machine: str
    """Kubernetes node on which its slurmd began, from its InstanceId; "" if slurmd did not report
    it."""
    images: Counts | None
    """Counts of the images that its jobs use; None before its checks have reported any."""


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
    """Return the tables of `lines`, each of which includes its line end. Raises UnexpectedError."""
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
            # Leave out the line itself: it may contain names that must not be in logs.
            said = f"unexpected record {kind[:20]!r} of {len(row)} columns: {type(error).__name__}"
            raise UnexpectedError(said) from error
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


# --- Values: a table has few different ones, so they are cached ----------------------------------


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
    """Yield the nodes of `gpu-[0-3,7],login`. In Slurm's lists of a job's nodes, numbers come
    last."""
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
    """Return the number of tasks in `0-9,15%3`; 1 for "", as in a job that is no such array."""
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
    """Return memory in bytes, and GPUs, of `cpu=2,mem=1000M,node=1,gres/gpu=1,gres/gpu:h100=1`."""
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
    """Return the GPUs by type of `gpu:h100:8(S:0-1),shard:32` or `gpu:2(IDX:0,3)`.

    For Slurm, slices of GPUs (MIG) are GPUs with a type of their own.
    """
    found: dict[str, int] = {}
    for type_, number in _GRES.findall(gres):
        found[type_] = found.get(type_, 0) + int(number)
    return MappingProxyType(found)
