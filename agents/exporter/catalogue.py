"""All metrics: their names, labels, meanings and sources.

docs/metrics.md has the same as tables; a test compares the two.
"""

from collections.abc import Mapping

from agents.metrics import Metric


def _gauge(name: str, means: str, unit: str, *labels: str) -> Metric:
    return Metric(name, means, unit, labels)


def _counter(name: str, means: str, unit: str, *labels: str) -> Metric:
    return Metric(name, means, unit, labels, "counter")


# --- Nodes ---------------------------------------------------------------------------------------

NODES = _gauge("slurm_nodes", "Nodes in a state.", "nodes", "state")
NODES_DRAINED = _gauge(
    "slurm_nodes_drained", "Nodes that somebody or something took out of service.", "nodes", "cause"
)
NODE_STATE = _gauge("slurm_node_state", "1 for the state that a node is in.", "", "node", "state")
NODE_INFO = _gauge(
    "slurm_node_info",
    "1 for the machine (node of Kubernetes) on which a node's slurmd began; "
    "nodes that did not say it are left out.",
    "",
    *("node", "machine"),
)
NODE_CPUS = _gauge("slurm_node_cpus", "CPUs that jobs may have.", "CPUs", "node")
NODE_CPUS_ALLOCATED = _gauge("slurm_node_cpus_allocated", "CPUs that jobs have.", "CPUs", "node")
NODE_MEMORY = _gauge("slurm_node_memory_bytes", "Memory that Slurm counts with.", "bytes", "node")
NODE_MEMORY_ALLOCATED = _gauge(
    "slurm_node_memory_allocated_bytes", "Memory that jobs have.", "bytes", "node"
)
NODE_MEMORY_FREE = _gauge(
    "slurm_node_memory_free_bytes", "Memory that was free when slurmd last told.", "bytes", "node"
)
NODE_GPUS = _gauge("slurm_node_gpus", "GPUs, or slices of them.", "GPUs", "node", "type")
NODE_GPUS_ALLOCATED = _gauge(
    "slurm_node_gpus_allocated", "GPUs that jobs have.", "GPUs", "node", "type"
)
NODE_LOAD = _gauge(
    "slurm_node_load", "Load average of one minute when slurmd last told.", "processes", "node"
)
NODE_DRAINED = _gauge(
    "slurm_node_drained_seconds",
    "How long ago a node that is drained or draining got its reason.",
    "seconds",
    *("node", "cause"),
)
NODE_JOBS_FAILED = _gauge(
    "slurm_node_jobs_failed",
    "Jobs on record that failed, by their first node; those without are left out.",
    "jobs",
    "node",
)

# --- Images of users, as their jobs report them --------------------------------------------------

IMAGE_PULLS = _counter(
    "slurmstack_image_pulls_total", "Images that were imported for jobs.", "images", "node"
)
IMAGE_PULL_BYTES = _counter(
    "slurmstack_image_pull_bytes_total", "Bytes that were downloaded for them.", "bytes", "node"
)
IMAGE_PULL_SECONDS = _counter(
    "slurmstack_image_pull_duration_seconds_total", "Time that it took.", "seconds", "node"
)
IMAGE_HITS = _counter(
    "slurmstack_image_hits_total",
    "Containers that started from an image in the cache.",
    "containers",
    "node",
)
IMAGE_FAILURES = _counter(
    "slurmstack_image_failures_total",
    "Images that could not be found or imported.",
    "images",
    "node",
)

# --- Jobs ----------------------------------------------------------------------------------------

JOBS = _gauge(
    "slurm_jobs", "Jobs on record in a state; each task of an array is one.", "jobs", "state"
)
JOBS_PENDING = _gauge("slurm_jobs_pending", "Jobs that wait, by why.", "jobs", "reason")
JOB_NODE = _gauge(
    "slurm_job_node",
    "1 for each node that a job runs on, of the largest jobs that run.",
    "",
    *("job_id", "node", "partition", "user", "account"),
)


def _waits(whose: str, label: str) -> tuple[Metric, ...]:
    share = f"How long such a share of jobs of {whose}"
    return (
        _gauge(
            f"slurm_{label}_pending_seconds",
            f"{share} that could begin waits at most; 1 is the longest.",
            "seconds",
            *(label, "share"),
        ),
        _gauge(
            f"slurm_{label}_waited_seconds",
            f"{share} that began in the last half hour waited at most.",
            "seconds",
            *(label, "share"),
        ),
    )


def _of(owner: str) -> tuple[Metric, ...]:
    what = f"the largest {owner}s"
    return (
        _gauge(f"slurm_{owner}_jobs", f"Jobs of {what} in a state.", "jobs", owner, "state"),
        _gauge(f"slurm_{owner}_cpus_allocated", f"CPUs that jobs of {what} have.", "CPUs", owner),
        _gauge(
            f"slurm_{owner}_cpus_requested",
            f"CPUs that jobs of {what} wait for, of those that could begin.",
            "CPUs",
            owner,
        ),
        _gauge(f"slurm_{owner}_gpus_allocated", f"GPUs that jobs of {what} have.", "GPUs", owner),
        _gauge(
            f"slurm_{owner}_gpus_requested",
            f"GPUs that jobs of {what} wait for, of those that could begin.",
            "GPUs",
            owner,
        ),
        *_waits(what, owner),
    )


ACCOUNTS = _of("account")
USERS = _of("user")

# --- Partitions ----------------------------------------------------------------------------------

PARTITION_STATE = _gauge(
    "slurm_partition_state", "1 for the state that a partition is in, 0 for the others.", "",
    *("partition", "state"),
)  # fmt: skip
PARTITION_NODES = _gauge(
    "slurm_partition_nodes", "Nodes of a partition in a state.", "nodes", "partition", "state"
)
PARTITION_JOBS = _gauge(
    "slurm_partition_jobs",
    "Jobs of a partition in a state; one that waits for several partitions is in each.",
    "jobs",
    *("partition", "state"),
)
PARTITION_WAITS = _waits("a partition", "partition")


def _resource(name: str, suffix: str, words: str, unit: str) -> tuple[Metric, ...]:
    return tuple(
        _gauge(f"slurm_partition_{name}{part}{suffix}", f"{words} {means}.", unit, "partition")
        for part, means in (
            ("", "of a partition's nodes"),
            ("_allocated", "that a partition's jobs have"),
            ("_requested", "that a partition's jobs wait for, of those that could begin"),
        )
    )


PARTITION_CPUS = _resource("cpus", "", "CPUs", "CPUs")
PARTITION_MEMORY = _resource("memory", "_bytes", "Memory", "bytes")
PARTITION_GPUS = _resource("gpus", "", "GPUs", "GPUs")

# --- Reservations and licenses -------------------------------------------------------------------

RESERVATION_NODES = _gauge(
    "slurm_reservation_nodes", "Nodes of a reservation.", "nodes", "reservation"
)
RESERVATION_START = _gauge(
    "slurm_reservation_start_timestamp_seconds", "When it begins.", "Unix time", "reservation"
)
RESERVATION_END = _gauge(
    "slurm_reservation_end_timestamp_seconds", "When it ends.", "Unix time", "reservation"
)
LICENSES = _gauge("slurm_licenses", "Licenses that there are.", "licenses", "license")
LICENSES_USED = _gauge("slurm_licenses_used", "Licenses that jobs have.", "licenses", "license")
LICENSES_FREE = _gauge("slurm_licenses_free", "Licenses that are free.", "licenses", "license")
LICENSES_RESERVED = _gauge(
    "slurm_licenses_reserved", "Licenses that reservations hold.", "licenses", "license"
)

# --- slurmctld -----------------------------------------------------------------------------------

STATISTICS_START = _gauge(
    "slurm_statistics_start_timestamp_seconds",
    "Since when slurmctld counts; it begins anew when it starts, and at midnight UTC.",
    "Unix time",
)
SERVER_THREADS = _gauge("slurm_server_threads", "Threads that answer requests.", "threads")
AGENT_QUEUE = _gauge(
    "slurm_agent_queue_length", "Messages to nodes that wait to be sent.", "messages"
)
DBD_AGENT_QUEUE = _gauge(
    "slurm_dbd_agent_queue_length", "Records that wait for slurmdbd.", "records"
)
JOBS_SUBMITTED = _counter("slurm_jobs_submitted_total", "Jobs that were submitted.", "jobs")
JOBS_STARTED = _counter("slurm_jobs_started_total", "Jobs that began.", "jobs")
JOBS_COMPLETED = _counter(
    "slurm_jobs_completed_total", "Jobs that ended by themselves, well or not.", "jobs"
)
JOBS_CANCELED = _counter("slurm_jobs_canceled_total", "Jobs that were cancelled.", "jobs")
JOBS_FAILED = _counter(
    "slurm_jobs_failed_total", "Jobs that failed by an error of slurmd's or of Slurm's own.", "jobs"
)
CYCLES = _counter("slurm_scheduler_cycles_total", "Cycles of the main scheduler.", "cycles")
CYCLE_LAST = _gauge("slurm_scheduler_cycle_last_seconds", "The last cycle.", "seconds")
CYCLE_MEAN = _gauge("slurm_scheduler_cycle_mean_seconds", "Mean of the cycles.", "seconds")
CYCLE_MAX = _gauge("slurm_scheduler_cycle_max_seconds", "The longest cycle.", "seconds")
QUEUE_LENGTH = _gauge("slurm_scheduler_queue_length", "Jobs that the last cycle saw.", "jobs")
BACKFILL_ACTIVE = _gauge("slurm_backfill_active", "1 while a cycle of backfill runs.", "")
BACKFILL_CYCLES = _counter("slurm_backfill_cycles_total", "Cycles of backfill.", "cycles")
BACKFILL_LAST = _gauge("slurm_backfill_cycle_last_seconds", "The last cycle.", "seconds")
BACKFILL_MEAN = _gauge("slurm_backfill_cycle_mean_seconds", "Mean of the cycles.", "seconds")
BACKFILL_DEPTH = _gauge("slurm_backfill_depth_last", "Jobs that the last cycle tried.", "jobs")
BACKFILL_QUEUE = _gauge("slurm_backfill_queue_length", "Jobs that the last cycle saw.", "jobs")
BACKFILL_JOBS = _counter("slurm_backfill_jobs_total", "Jobs that backfill began.", "jobs")
RPCS = _counter("slurm_rpcs_total", "Remote procedure calls that were answered.", "calls", "type")
RPC_SECONDS = _counter(
    "slurm_rpc_duration_seconds_total", "Time that the answers took.", "seconds", "type"
)
USER_RPCS = _counter(
    "slurm_user_rpcs_total",
    "Calls of the users whose answers took most of the time, daemons' among them.",
    "calls",
    "user",
)
USER_RPC_SECONDS = _counter(
    "slurm_user_rpc_duration_seconds_total", "Time that their answers took.", "seconds", "user"
)

# --- The jail and the volumes in it --------------------------------------------------------------

JAIL_SIZE = _gauge(
    "slurmstack_jail_size_bytes", "The file system of the jail, or of a volume in it.", "bytes",
    "volume",
)  # fmt: skip
JAIL_AVAILABLE = _gauge(
    "slurmstack_jail_available_bytes", "What of it users may still fill.", "bytes", "volume"
)
JAIL_FILES = _gauge(
    "slurmstack_jail_files",
    "Files that it has room for, where it knows a limit.",
    "files",
    "volume",
)
JAIL_FILES_FREE = _gauge(
    "slurmstack_jail_files_free",
    "Files that may still be made, where it knows a limit.",
    "files",
    "volume",
)

# --- The exporter's own --------------------------------------------------------------------------

UP = _gauge("slurm_up", "1 where Slurm told all that it was last asked for, else 0.", "")
READ_UP = _gauge(
    "slurm_exporter_read_up", "1 where the last read of a source was good, else 0.", "", "source"
)
DATA_AGE = _gauge(
    "slurm_exporter_data_age_seconds",
    "How long ago the last good read of a source began.",
    "seconds",
    "source",
)
READ_SECONDS = _gauge(
    "slurm_exporter_read_duration_seconds", "How long its last read took.", "seconds", "source"
)
READS = _counter("slurm_exporter_reads_total", "Reads of a source.", "reads", "source")
READ_FAILURES = _counter(
    "slurm_exporter_read_failures_total", "Reads of a source that failed.", "reads", "source"
)
INTERVAL = _gauge(
    "slurm_exporter_interval_seconds", "Between the reads of a source.", "seconds", "source"
)

SOURCES: Mapping[str, tuple[Metric, ...]] = {
    "cluster": (
        *(NODES, NODES_DRAINED, NODE_STATE, NODE_INFO, NODE_CPUS, NODE_CPUS_ALLOCATED),
        *(NODE_MEMORY, NODE_MEMORY_ALLOCATED, NODE_MEMORY_FREE, NODE_GPUS, NODE_GPUS_ALLOCATED),
        *(NODE_LOAD, NODE_DRAINED, NODE_JOBS_FAILED),
        *(IMAGE_PULLS, IMAGE_PULL_BYTES, IMAGE_PULL_SECONDS, IMAGE_HITS, IMAGE_FAILURES),
        *(JOBS, JOBS_PENDING, JOB_NODE, *ACCOUNTS, *USERS),
        *(PARTITION_STATE, PARTITION_NODES, PARTITION_JOBS, *PARTITION_WAITS),
        *(*PARTITION_CPUS, *PARTITION_MEMORY, *PARTITION_GPUS),
    ),
    "scheduler": (
        *(STATISTICS_START, SERVER_THREADS, AGENT_QUEUE, DBD_AGENT_QUEUE),
        *(JOBS_SUBMITTED, JOBS_STARTED, JOBS_COMPLETED, JOBS_CANCELED, JOBS_FAILED),
        *(CYCLES, CYCLE_LAST, CYCLE_MEAN, CYCLE_MAX, QUEUE_LENGTH),
        *(BACKFILL_ACTIVE, BACKFILL_CYCLES, BACKFILL_LAST, BACKFILL_MEAN, BACKFILL_DEPTH),
        *(BACKFILL_QUEUE, BACKFILL_JOBS, RPCS, RPC_SECONDS, USER_RPCS, USER_RPC_SECONDS),
    ),
    "reservations": (RESERVATION_NODES, RESERVATION_START, RESERVATION_END),
    "licenses": (LICENSES, LICENSES_USED, LICENSES_FREE, LICENSES_RESERVED),
    "jail": (JAIL_SIZE, JAIL_AVAILABLE, JAIL_FILES, JAIL_FILES_FREE),
    "exporter": (UP, READ_UP, DATA_AGE, READ_SECONDS, READS, READ_FAILURES, INTERVAL),
}
"""All metrics, by source."""
