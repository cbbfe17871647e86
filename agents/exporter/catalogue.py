"""List all metrics, with their names, labels, meanings and sources.

docs/metrics.md contains the same list; a test compares both.
"""

from collections.abc import Mapping

from agents.metrics import Metric


def _gauge(name: str, means: str, unit: str, *labels: str) -> Metric:
    return Metric(name, means, unit, labels)


def _counter(name: str, means: str, unit: str, *labels: str) -> Metric:
    return Metric(name, means, unit, labels, "counter")


# --- Nodes ---------------------------------------------------------------------------------------

NODES = _gauge("slurm_nodes", "Number of nodes in each state.", "nodes", "state")
NODES_DRAINED = _gauge(
    "slurm_nodes_drained",
    "Drained nodes by the cause in the reason; `foreign` if slurmstack did not set the reason.",
    "nodes",
    "cause",
)
NODE_STATE = _gauge("slurm_node_state", "1 for the current state of a node.", "", "node", "state")
NODE_INFO = _gauge(
    "slurm_node_info",
    "1 for the machine (Kubernetes node) on which a node's slurmd started; "
    "a node has no series until its slurmd reports the machine.",
    "",
    *("node", "machine"),
)
NODE_CPUS = _gauge("slurm_node_cpus", "CPUs of a node that jobs can use.", "CPUs", "node")
NODE_CPUS_ALLOCATED = _gauge("slurm_node_cpus_allocated", "CPUs allocated to jobs.", "CPUs", "node")
NODE_MEMORY = _gauge(
    "slurm_node_memory_bytes", "Memory of the node in Slurm's record (RealMemory).", "bytes", "node"
)
NODE_MEMORY_ALLOCATED = _gauge(
    "slurm_node_memory_allocated_bytes", "Memory allocated to jobs.", "bytes", "node"
)
NODE_MEMORY_FREE = _gauge(
    "slurm_node_memory_free_bytes", "Free memory in slurmd's last report.", "bytes", "node"
)
NODE_GPUS = _gauge("slurm_node_gpus", "GPUs, or slices of GPUs (MIG).", "GPUs", "node", "type")
NODE_GPUS_ALLOCATED = _gauge(
    "slurm_node_gpus_allocated", "GPUs allocated to jobs.", "GPUs", "node", "type"
)
NODE_LOAD = _gauge(
    "slurm_node_load", "One-minute load average in slurmd's last report.", "processes", "node"
)
NODE_DRAINED = _gauge(
    "slurm_node_drained_seconds",
    "Time since a node was drained; only drained and draining nodes have series.",
    "seconds",
    *("node", "cause"),
)
NODE_JOBS_FAILED = _gauge(
    "slurm_node_jobs_failed",
    "Failed jobs that slurmctld has on record, counted at the first node of each job.",
    "jobs",
    "node",
)

# --- Users' images, from reports of jobs ---------------------------------------------------------

IMAGE_PULLS = _counter(
    "slurmstack_image_pulls_total", "Images that the node imported for jobs.", "images", "node"
)
IMAGE_PULL_BYTES = _counter(
    "slurmstack_image_pull_bytes_total",
    "Bytes that the node downloaded to import images.",
    "bytes",
    "node",
)
IMAGE_PULL_SECONDS = _counter(
    "slurmstack_image_pull_duration_seconds_total",
    "Time that the node spent on importing images for jobs.",
    "seconds",
    "node",
)
IMAGE_HITS = _counter(
    "slurmstack_image_hits_total",
    "Containers that started from an image that was already in the node's cache.",
    "containers",
    "node",
)
IMAGE_FAILURES = _counter(
    "slurmstack_image_failures_total",
    "Images that the node could not find or import for a job.",
    "images",
    "node",
)

# --- Jobs ----------------------------------------------------------------------------------------

JOBS = _gauge(
    "slurm_jobs",
    "Jobs that slurmctld has on record, by state; each task of an array is one job.",
    "jobs",
    "state",
)
JOBS_PENDING = _gauge(
    "slurm_jobs_pending", "Pending jobs by the reason why they wait.", "jobs", "reason"
)
JOB_NODE = _gauge(
    "slurm_job_node",
    "1 for each node of a running job; only the largest jobs have series.",
    "",
    *("job_id", "node", "partition", "user", "account"),
)


def _waits(whose: str, label: str) -> tuple[Metric, ...]:
    return (
        _gauge(
            f"slurm_{label}_pending_seconds",
            f"Time that pending jobs of {whose} have waited: quantile `share`, where 1 is the "
            "longest wait; only jobs that could start on an empty cluster.",
            "seconds",
            *(label, "share"),
        ),
        _gauge(
            f"slurm_{label}_waited_seconds",
            f"Time that jobs of {whose} waited before their start: quantile `share`, where 1 is "
            "the longest wait; only jobs that started in the last half hour.",
            "seconds",
            *(label, "share"),
        ),
    )


def _of(owner: str) -> tuple[Metric, ...]:
    what = f"the largest {owner}s"
    return (
        _gauge(f"slurm_{owner}_jobs", f"Jobs of {what} by state.", "jobs", owner, "state"),
        _gauge(
            f"slurm_{owner}_cpus_allocated", f"CPUs allocated to jobs of {what}.", "CPUs", owner
        ),
        _gauge(
            f"slurm_{owner}_cpus_requested",
            f"CPUs requested by pending jobs of {what} that could start on an empty cluster.",
            "CPUs",
            owner,
        ),
        _gauge(
            f"slurm_{owner}_gpus_allocated", f"GPUs allocated to jobs of {what}.", "GPUs", owner
        ),
        _gauge(
            f"slurm_{owner}_gpus_requested",
            f"GPUs requested by pending jobs of {what} that could start on an empty cluster.",
            "GPUs",
            owner,
        ),
        *_waits(what, owner),
    )


ACCOUNTS = _of("account")
USERS = _of("user")

# --- Partitions ----------------------------------------------------------------------------------

PARTITION_STATE = _gauge(
    "slurm_partition_state", "1 for the current state of a partition, 0 for other states.", "",
    *("partition", "state"),
)  # fmt: skip
PARTITION_NODES = _gauge(
    "slurm_partition_nodes", "Nodes of a partition by state.", "nodes", "partition", "state"
)
PARTITION_JOBS = _gauge(
    "slurm_partition_jobs",
    "Jobs of a partition by state; a job that waits for several partitions is in each of them.",
    "jobs",
    *("partition", "state"),
)
PARTITION_WAITS = _waits("a partition", "partition")


def _resource(name: str, suffix: str, words: str, unit: str) -> tuple[Metric, ...]:
    return tuple(
        _gauge(f"slurm_partition_{name}{part}{suffix}", f"{words} {means}.", unit, "partition")
        for part, means in (
            ("", "of a partition's nodes"),
            ("_allocated", "allocated to a partition's jobs"),
            (
                "_requested",
                "requested by pending jobs of a partition that could start on an empty cluster",
            ),
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
    "slurm_reservation_start_timestamp_seconds",
    "Start of a reservation.",
    "Unix time",
    "reservation",
)
RESERVATION_END = _gauge(
    "slurm_reservation_end_timestamp_seconds", "End of a reservation.", "Unix time", "reservation"
)
LICENSES = _gauge("slurm_licenses", "Total number of licenses.", "licenses", "license")
LICENSES_USED = _gauge("slurm_licenses_used", "Licenses allocated to jobs.", "licenses", "license")
LICENSES_FREE = _gauge("slurm_licenses_free", "Free licenses.", "licenses", "license")
LICENSES_RESERVED = _gauge(
    "slurm_licenses_reserved", "Licenses held by reservations.", "licenses", "license"
)

# --- slurmctld -----------------------------------------------------------------------------------

STATISTICS_START = _gauge(
    "slurm_statistics_start_timestamp_seconds",
    "Time when slurmctld last set its counters to zero: at its start, or at midnight UTC.",
    "Unix time",
)
SERVER_THREADS = _gauge(
    "slurm_server_threads", "Threads of slurmctld that answer a request now.", "threads"
)
AGENT_QUEUE = _gauge(
    "slurm_agent_queue_length", "Messages that slurmctld has not sent to nodes yet.", "messages"
)
DBD_AGENT_QUEUE = _gauge(
    "slurm_dbd_agent_queue_length",
    "Records that slurmctld has not sent to slurmdbd yet.",
    "records",
)
JOBS_SUBMITTED = _counter("slurm_jobs_submitted_total", "Submitted jobs.", "jobs")
JOBS_STARTED = _counter("slurm_jobs_started_total", "Started jobs.", "jobs")
JOBS_COMPLETED = _counter(
    "slurm_jobs_completed_total", "Jobs that ended by themselves, successful or not.", "jobs"
)
JOBS_CANCELED = _counter("slurm_jobs_canceled_total", "Cancelled jobs.", "jobs")
JOBS_FAILED = _counter(
    "slurm_jobs_failed_total",
    "Jobs that failed because of an error in slurmd or in Slurm itself.",
    "jobs",
)
CYCLES = _counter("slurm_scheduler_cycles_total", "Cycles of the main scheduler.", "cycles")
CYCLE_LAST = _gauge(
    "slurm_scheduler_cycle_last_seconds", "Duration of the main scheduler's last cycle.", "seconds"
)
CYCLE_MEAN = _gauge(
    "slurm_scheduler_cycle_mean_seconds", "Mean duration of the main scheduler's cycles.", "seconds"
)
CYCLE_MAX = _gauge(
    "slurm_scheduler_cycle_max_seconds",
    "Duration of the main scheduler's longest cycle.",
    "seconds",
)
QUEUE_LENGTH = _gauge(
    "slurm_scheduler_queue_length",
    "Pending jobs that the main scheduler found in its last cycle.",
    "jobs",
)
BACKFILL_ACTIVE = _gauge("slurm_backfill_active", "1 while a backfill cycle runs.", "")
BACKFILL_CYCLES = _counter(
    "slurm_backfill_cycles_total", "Cycles of the backfill scheduler.", "cycles"
)
BACKFILL_LAST = _gauge(
    "slurm_backfill_cycle_last_seconds", "Duration of the last backfill cycle.", "seconds"
)
BACKFILL_MEAN = _gauge(
    "slurm_backfill_cycle_mean_seconds", "Mean duration of backfill cycles.", "seconds"
)
BACKFILL_DEPTH = _gauge(
    "slurm_backfill_depth_last", "Jobs that the last backfill cycle tried to start.", "jobs"
)
BACKFILL_QUEUE = _gauge(
    "slurm_backfill_queue_length", "Pending jobs that backfill found in its last cycle.", "jobs"
)
BACKFILL_JOBS = _counter("slurm_backfill_jobs_total", "Jobs that backfill started.", "jobs")
RPCS = _counter(
    "slurm_rpcs_total", "Remote procedure calls that slurmctld answered.", "calls", "type"
)
RPC_SECONDS = _counter(
    "slurm_rpc_duration_seconds_total",
    "Time that slurmctld spent on answering remote procedure calls.",
    "seconds",
    "type",
)
USER_RPCS = _counter(
    "slurm_user_rpcs_total",
    "Remote procedure calls of users, daemons included; only users with the most RPC time have "
    "series.",
    "calls",
    "user",
)
USER_RPC_SECONDS = _counter(
    "slurm_user_rpc_duration_seconds_total",
    "Time that slurmctld spent on calls of users, daemons included; only users with the most time "
    "have series.",
    "seconds",
    "user",
)

# --- The jail and the volumes in it --------------------------------------------------------------

JAIL_SIZE = _gauge(
    "slurmstack_jail_size_bytes",
    "Size of the file system of the jail, or of a volume in it.",
    "bytes",
    "volume",
)
JAIL_AVAILABLE = _gauge(
    "slurmstack_jail_available_bytes",
    "Free space of the file system that users can fill.",
    "bytes",
    "volume",
)
JAIL_FILES = _gauge(
    "slurmstack_jail_files",
    "Maximum number of files that the file system permits; no series without a maximum.",
    "files",
    "volume",
)
JAIL_FILES_FREE = _gauge(
    "slurmstack_jail_files_free",
    "Number of files that users can still create; no series without a maximum.",
    "files",
    "volume",
)

# --- The exporter itself -------------------------------------------------------------------------

UP = _gauge(
    "slurm_up", "1 if the exporter's last reads of all Slurm sources succeeded, else 0.", ""
)
READ_UP = _gauge(
    "slurm_exporter_read_up", "1 if the last read of a source succeeded, else 0.", "", "source"
)
DATA_AGE = _gauge(
    "slurm_exporter_data_age_seconds",
    "Time since the start of the last successful read of a source.",
    "seconds",
    "source",
)
READ_SECONDS = _gauge(
    "slurm_exporter_read_duration_seconds",
    "Duration of the last read of a source.",
    "seconds",
    "source",
)
READS = _counter("slurm_exporter_reads_total", "Attempts to read a source.", "reads", "source")
READ_FAILURES = _counter(
    "slurm_exporter_read_failures_total", "Failed attempts to read a source.", "reads", "source"
)
INTERVAL = _gauge(
    "slurm_exporter_interval_seconds", "Time between two reads of a source.", "seconds", "source"
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
