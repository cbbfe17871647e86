"""Compute the metrics from Slurm's tables. All functions are pure."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from prometheus_client.metrics_core import Metric as Family

from agents.containers.counts import Counts
from agents.exporter import catalogue as c
from agents.exporter import naming
from agents.exporter.rows import Job, License, Node, Reservation, Tables, hosts
from agents.metrics import Metric
from agents.slurm import Statistics

OTHER = "other"
"""Label for all accounts or users that are not among the largest."""
QUANTILES = (0.5, 0.9, 1.0)
"""Values of the label `share`. The label `quantile` is reserved for summaries (promtool check
metrics)."""
LATELY = 1800
"""Seconds: metrics of past waits include jobs that started within this time, because older waits do
not describe the current state. With the stack's default of MinJobAge, slurmctld still has records
of all these jobs."""
PARTITION_STATES = ("up", "down", "drain", "inactive")
MILLISECOND, MICROSECOND = 1e-3, 1e-6
K = TypeVar("K", bound=Hashable)


def cluster(
    tables: Tables, now: float, top: int, pairs: int, name_of: Callable[[int], str]
) -> Iterator[Family]:
    """Yield metrics of nodes, jobs and partitions.

    `top` is the number of accounts and the number of users with their own series. `pairs` is the
    maximum number of pairs of a running job and a node. `name_of` returns a user's name by uid.
    """
    drained = {node.name: naming.cause(node.reason) for node in tables.nodes if is_drained(node)}
    words = {
        node.name: naming.node_state(node.states, node.memory_of_jobs) for node in tables.nodes
    }
    # If Slurm does not account for GPUs, it does not report the GPUs of a job. In that case, leave
    # out the GPUs of accounts, users and partitions, because 0 would be wrong.
    counts_gpus = any(node.accounts_gpus for node in tables.nodes)
    yield from _nodes(tables.nodes, words, drained, now)
    queue = Queue.of(tables.jobs, now)
    yield c.NODE_JOBS_FAILED.family(sorted(queue.failed_on.items()))
    yield c.JOBS.family((state, queue.states[state]) for state in naming.JOB_STATES)
    yield c.JOBS_PENDING.family(
        (reason, queue.reasons[reason]) for reason in naming.PENDING_REASONS
    )
    accounts = labels_of_largest(queue.accounts, top, naming.label)
    users = labels_of_largest(queue.users, top, lambda uid: naming.label(name_of(uid)))
    yield from _owners(c.ACCOUNTS, queue.accounts, accounts, counts_gpus)
    yield from _owners(c.USERS, queue.users, users, counts_gpus)
    yield c.JOB_NODE.family(
        (
            (
                *(job.id, node, ",".join(job.partitions)),
                *(users.get(job.uid, OTHER), accounts.get(job.account, OTHER)),
            ),
            1,
        )
        for job, node in nodes_of_largest(tables.jobs, pairs)
    )
    yield from _partitions(tables, queue, words, counts_gpus)


# --- Nodes ---------------------------------------------------------------------------------------


def is_drained(node: Node) -> bool:
    return "DRAIN" in node.states


def _nodes(
    nodes: Collection[Node], words: Mapping[str, str], drained: Mapping[str, str], now: float
) -> Iterator[Family]:
    states, causes = Counter(words.values()), Counter(drained.values())
    yield c.NODES.family((state, states[state]) for state in naming.NODE_STATES)
    yield c.NODES_DRAINED.family(sorted(({naming.FOREIGN: 0} | causes).items()))
    yield c.NODE_STATE.family((item, 1) for item in words.items())
    yield c.NODE_INFO.family(((node.name, node.machine), 1) for node in nodes if node.machine)
    yield c.NODE_CPUS.family((node.name, node.cpus) for node in nodes)
    yield c.NODE_CPUS_ALLOCATED.family((node.name, node.cpus_of_jobs) for node in nodes)
    yield c.NODE_MEMORY.family((node.name, node.memory) for node in nodes)
    yield c.NODE_MEMORY_ALLOCATED.family((node.name, node.memory_of_jobs) for node in nodes)
    yield c.NODE_MEMORY_FREE.family(
        (node.name, node.memory_free) for node in nodes if node.memory_free is not None
    )
    yield c.NODE_GPUS.family(
        ((node.name, type_), count) for node in nodes for type_, count in node.gpus.items()
    )
    yield c.NODE_GPUS_ALLOCATED.family(
        ((node.name, type_), node.gpus_of_jobs.get(type_, 0))
        for node in nodes
        for type_ in node.gpus
    )
    yield c.NODE_LOAD.family((node.name, node.load) for node in nodes if node.load is not None)
    yield c.NODE_DRAINED.family(
        ((node.name, drained[node.name]), max(0.0, now - node.since))
        for node in nodes
        if node.name in drained
    )
    yield from _images({node.name: node.images for node in nodes if node.images})


def _images(counts: Mapping[str, Counts]) -> Iterator[Family]:
    yield c.IMAGE_PULLS.family((node, one.pulls) for node, one in counts.items())
    yield c.IMAGE_PULL_BYTES.family((node, one.downloaded) for node, one in counts.items())
    yield c.IMAGE_PULL_SECONDS.family(
        (node, one.milliseconds * MILLISECOND) for node, one in counts.items()
    )
    yield c.IMAGE_HITS.family((node, one.hits) for node, one in counts.items())
    yield c.IMAGE_FAILURES.family((node, one.failures) for node, one in counts.items())


# --- Jobs ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """Number of jobs, their resources and their waiting times, added up."""

    states: Counter[str] = field(default_factory=Counter)
    allocated: Counter[str] = field(default_factory=Counter)
    """CPUs, bytes of memory and GPUs of running jobs, under `cpus`, `memory` and `gpus`. Suspended
    jobs have only memory and GPUs."""
    requested: Counter[str] = field(default_factory=Counter)
    """The same resources of pending jobs that could start."""
    waiting: Counter[float] = field(default_factory=Counter)
    """Number of pending jobs that could start, by their wait in seconds."""
    waited: Counter[float] = field(default_factory=Counter)
    """Number of jobs that started within `LATELY`, by their wait in seconds."""

    @property
    def size(self) -> int:
        """Allocated and requested CPUs, which determine the largest accounts and users."""
        return self.allocated["cpus"] + self.requested["cpus"]

    def add(self, state: str, job: Job, waiting: float | None, waited: float | None) -> None:
        self.states[state] += job.tasks
        if waited is not None:
            self.waited[waited] += job.tasks
        if waiting is not None:
            self.waiting[waiting] += job.tasks
            amounts = self.requested
        elif state in naming.HAVE or state == naming.SUSPENDED:
            amounts = self.allocated
        else:
            return
        if state != naming.SUSPENDED:
            amounts["cpus"] += job.tasks * job.cpus
        amounts["memory"] += job.tasks * job.memory
        amounts["gpus"] += job.tasks * job.gpus

    def merge(self, other: "Load") -> None:
        self.states += other.states
        self.allocated += other.allocated
        self.requested += other.requested
        # Do not use `+=`: it searches the thousands of entries for values that are not positive.
        self.waiting.update(other.waiting)
        self.waited.update(other.waited)


@dataclass
class Queue:
    """Sums over all jobs, by state, reason, node, account, user and partition."""

    now: float
    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failed_on: Counter[str] = field(default_factory=Counter)
    accounts: defaultdict[str, Load] = field(default_factory=lambda: defaultdict(Load))
    users: defaultdict[int, Load] = field(default_factory=lambda: defaultdict(Load))
    partitions: defaultdict[str, Load] = field(default_factory=lambda: defaultdict(Load))

    @classmethod
    def of(cls, jobs: Iterable[Job], now: float) -> "Queue":
        queue = cls(now)
        for job in jobs:
            queue._add(job)
        return queue

    def _add(self, job: Job) -> None:
        state = naming.job_state(job.state)
        self.states[state] += job.tasks
        waits = self._waiting(state, job), self._waited(state, job)
        self.accounts[job.account].add(state, job, *waits)
        self.users[job.uid].add(state, job, *waits)
        for partition in job.partitions:
            self.partitions[partition].add(state, job, *waits)
        if state == naming.PENDING:
            self.reasons[naming.pending_reason(job.reason)] += job.tasks
        elif state in naming.FAILED and job.node:
            self.failed_on[job.node] += job.tasks

    def _waiting(self, state: str, job: Job) -> float | None:
        """Return a pending job's wait in seconds.

        Returns None if even an empty cluster could not start the job.
        """
        # A job that is held after it became eligible keeps its eligible time. Only its reason shows
        # the hold.
        if state != naming.PENDING or naming.pending_reason(job.reason) in naming.NOT_YET:
            return None
        return self.now - job.eligible if 0 < job.eligible <= self.now else None

    def _waited(self, state: str, job: Job) -> float | None:
        """Return the wait in seconds of a job that started within `LATELY`, or else None."""
        # A job that was cancelled before its start also has a start time, but no node.
        if state == naming.PENDING or not job.node or not job.eligible:
            return None
        began_lately = self.now - LATELY <= job.start <= self.now
        return max(0, job.start - job.eligible) if began_lately else None


def labels_of_largest(loads: Mapping[K, Load], top: int, label: Callable[[K], str]) -> dict[K, str]:
    """Return the labels of the `top` largest accounts or users. All other accounts or users share
    one label."""
    order = sorted(loads.items(), key=lambda item: (-item[1].size, str(item[0])))
    return {key: label(key) for key, _ in order[:top]}


def nodes_of_largest(jobs: Iterable[Job], pairs: int) -> Iterator[tuple[Job, str]]:
    """Yield pairs of a running job and a node, starting with the jobs with most CPUs.

    There are at most `pairs` pairs. A job is left out if this limit excludes one of its nodes.
    """
    running = sorted((job for job in jobs if job.nodes), key=lambda job: -job.cpus)
    for job in running:
        # Expand only one node more than the limit permits: this shows whether the job exceeds it.
        nodes = list(islice(hosts(job.nodes), pairs + 1))
        if len(nodes) <= pairs:
            yield from ((job, node) for node in nodes)
            pairs -= len(nodes)
        if not pairs:
            return


def _owners(
    metrics: tuple[Metric, ...],
    loads: Mapping[K, Load],
    labels: Mapping[K, str],
    counts_gpus: bool,
) -> Iterator[Family]:
    sums: defaultdict[str, Load] = defaultdict(Load)
    for key, load in loads.items():
        sums[labels.get(key, OTHER)].merge(load)
    shown = dict(sorted(sums.items()))
    jobs, cpus_allocated, cpus_requested, gpus_allocated, gpus_requested, *waits = metrics
    yield jobs.family(
        ((name, state), load.states[state])
        for name, load in shown.items()
        for state in naming.JOB_STATES
        if load.states[state] or state in (naming.PENDING, naming.RUNNING)
    )
    yield cpus_allocated.family((name, load.allocated["cpus"]) for name, load in shown.items())
    yield cpus_requested.family((name, load.requested["cpus"]) for name, load in shown.items())
    if counts_gpus:
        yield gpus_allocated.family((name, load.allocated["gpus"]) for name, load in shown.items())
        yield gpus_requested.family((name, load.requested["gpus"]) for name, load in shown.items())
    yield from _waits(waits, shown)


def _waits(metrics: Sequence[Metric], loads: Mapping[str, Load]) -> Iterator[Family]:
    """Yield the waits of pending jobs, and of jobs that started within `LATELY`."""
    waiting, waited = metrics
    yield waiting.family(_shares({name: load.waiting for name, load in loads.items()}))
    yield waited.family(_shares({name: load.waited for name, load in loads.items()}))


def _shares(waits: Mapping[str, Mapping[float, int]]) -> Iterator[tuple[tuple[str, str], float]]:
    for name, counts in waits.items():
        for share, seconds in quantiles(counts):
            yield (name, f"{share:g}"), seconds


def quantiles(waits: Mapping[float, int]) -> Iterator[tuple[float, float]]:
    """Yield each quantile in QUANTILES, with its wait in seconds.

    `waits` contains the number of jobs by their wait in seconds.
    """
    left, total = 0, sum(waits.values())
    wanted = iter(QUANTILES)
    quantile = next(wanted)
    for seconds, count in sorted(waits.items()):
        left += count
        while left >= quantile * total:
            yield quantile, seconds
            if (following := next(wanted, None)) is None:
                return
            quantile = following


# --- Partitions ----------------------------------------------------------------------------------


def _partitions(
    tables: Tables, queue: Queue, words: Mapping[str, str], counts_gpus: bool
) -> Iterator[Family]:
    names = [partition.name for partition in tables.partitions]
    members: defaultdict[str, list[Node]] = defaultdict(list)
    for node in tables.nodes:
        for name in node.partitions:
            members[name].append(node)
    states = {name: Counter(words[node.name] for node in members[name]) for name in names}
    yield c.PARTITION_STATE.family(
        ((partition.name, state), partition.state == state)
        for partition in tables.partitions
        for state in PARTITION_STATES
    )
    yield c.PARTITION_NODES.family(
        ((name, state), states[name][state]) for name in names for state in naming.NODE_STATES
    )
    yield c.PARTITION_JOBS.family(
        ((name, state), queue.partitions[name].states[state])
        for name in names
        for state in naming.JOB_STATES
    )
    yield from _waits(c.PARTITION_WAITS, {name: queue.partitions[name] for name in names})
    resources = [
        ("cpus", c.PARTITION_CPUS, lambda node: node.cpus),
        ("memory", c.PARTITION_MEMORY, lambda node: node.memory),
    ]
    if counts_gpus:
        resources.append(("gpus", c.PARTITION_GPUS, lambda node: sum(node.gpus.values())))
    for key, (there, allocated, requested), amount in resources:
        yield there.family((name, sum(map(amount, members[name]))) for name in names)
        yield allocated.family((name, queue.partitions[name].allocated[key]) for name in names)
        yield requested.family((name, queue.partitions[name].requested[key]) for name in names)


# --- Other metrics -------------------------------------------------------------------------------


def reservations(found: Collection[Reservation]) -> Iterator[Family]:
    shown: defaultdict[str, list[Reservation]] = defaultdict(list)
    for one in found:
        shown[naming.reservation(one.name)].append(one)
    alike = shown.items()
    yield c.RESERVATION_NODES.family((name, sum(one.nodes for one in ones)) for name, ones in alike)
    yield c.RESERVATION_START.family((name, min(one.start for one in ones)) for name, ones in alike)
    yield c.RESERVATION_END.family((name, max(one.end for one in ones)) for name, ones in alike)


def licenses(found: Collection[License]) -> Iterator[Family]:
    yield c.LICENSES.family((one.name, one.total) for one in found)
    yield c.LICENSES_USED.family((one.name, one.used) for one in found)
    yield c.LICENSES_FREE.family((one.name, one.free) for one in found)
    yield c.LICENSES_RESERVED.family((one.name, one.reserved) for one in found)


def jail(volumes: Mapping[str, os.statvfs_result]) -> Iterator[Family]:
    """Yield metrics of file systems. `statvfs` reports 0 files if a file system has no limit."""
    limited = {name: one for name, one in volumes.items() if one.f_files}
    yield c.JAIL_SIZE.family((name, one.f_blocks * one.f_frsize) for name, one in volumes.items())
    yield c.JAIL_AVAILABLE.family(
        (name, one.f_bavail * one.f_frsize) for name, one in volumes.items()
    )
    yield c.JAIL_FILES.family((name, one.f_files) for name, one in limited.items())
    yield c.JAIL_FILES_FREE.family((name, one.f_ffree) for name, one in limited.items())


def scheduler(statistics: Statistics, top: int, name_of: Callable[[int], str]) -> Iterator[Family]:
    """Yield metrics of slurmctld's work. As in `cluster`, `top` users have their own series."""
    if statistics.since:
        yield c.STATISTICS_START.value(statistics.since.timestamp())
    yield c.SERVER_THREADS.value(statistics.server_threads)
    yield c.AGENT_QUEUE.value(statistics.agent_queue)
    yield c.DBD_AGENT_QUEUE.value(statistics.dbd_agent_queue)
    yield c.JOBS_SUBMITTED.value(statistics.jobs_submitted)
    yield c.JOBS_STARTED.value(statistics.jobs_started)
    yield c.JOBS_COMPLETED.value(statistics.jobs_completed)
    yield c.JOBS_CANCELED.value(statistics.jobs_canceled)
    yield c.JOBS_FAILED.value(statistics.jobs_failed)
    yield c.CYCLES.value(statistics.schedule_cycles)
    yield c.CYCLE_LAST.value(statistics.schedule_cycle_last * MICROSECOND)
    yield c.CYCLE_MEAN.value(statistics.schedule_cycle_mean * MICROSECOND)
    yield c.CYCLE_MAX.value(statistics.schedule_cycle_max * MICROSECOND)
    yield c.QUEUE_LENGTH.value(statistics.schedule_queue)
    yield c.BACKFILL_ACTIVE.value(statistics.backfill_active)
    yield c.BACKFILL_CYCLES.value(statistics.backfill_cycles)
    yield c.BACKFILL_LAST.value(statistics.backfill_cycle_last * MICROSECOND)
    yield c.BACKFILL_MEAN.value(statistics.backfill_cycle_mean * MICROSECOND)
    yield c.BACKFILL_DEPTH.value(statistics.backfill_depth_last)
    yield c.BACKFILL_QUEUE.value(statistics.backfill_queue)
    yield c.BACKFILL_JOBS.value(statistics.backfill_jobs)
    calls = sorted(statistics.calls_by_type, key=lambda call: call.name)
    yield c.RPCS.family((call.name, call.count) for call in calls)
    yield c.RPC_SECONDS.family((call.name, call.total_time * MICROSECOND) for call in calls)
    # Do not sum the other users in one series. The sum would fall when one of these users becomes
    # one of the largest, and Prometheus would treat the fall as a restart of the counter.
    largest = sorted(statistics.calls_by_user, key=lambda call: (-call.total_time, call.uid))[:top]
    counts, times = Counter[str](), Counter[str]()
    for call in largest:
        user = naming.label(name_of(call.uid))
        counts[user] += call.count
        times[user] += call.total_time
    yield c.USER_RPCS.family(counts.items())
    yield c.USER_RPC_SECONDS.family((user, time * MICROSECOND) for user, time in times.items())
