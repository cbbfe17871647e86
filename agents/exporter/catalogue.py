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

NODES = _gauge(
    "slurm_nodes", "Number of nodes, by the node state that Slurm reports.", "nodes", "state"
)
NODES_DRAINED = _gauge(
    "slurm_nodes_drained",
    "Number of drained nodes. The label `cause` comes from the drain reason: `foreign` means "
    "that slurmstack did not set the reason.",
    "nodes",
    "cause",
)
NODE_STATE = _gauge(
    "slurm_node_state",
    "Always 1. The label `state` is the node's current state in Slurm.",
    "",
    "node",
    "state",
)
NODE_INFO = _gauge(
    "slurm_node_info",
    "Always 1. The label `machine` is the Kubernetes node on which the Slurm node's slurmd "
    "started. This metric is absent until slurmd reports the machine.",
    "",
    *("node", "machine"),
)
NODE_CPUS = _gauge("slurm_node_cpus", "Number of a node's CPUs that jobs can use.", "CPUs", "node")
NODE_CPUS_ALLOCATED = _gauge(
    "slurm_node_cpus_allocated",
    "Number of a node's CPUs that are allocated to jobs.",
    "CPUs",
    "node",
)
NODE_MEMORY = _gauge(
    "slurm_node_memory_bytes",
    "Memory of a node according to Slurm's record (RealMemory).",
    "bytes",
    "node",
)
NODE_MEMORY_ALLOCATED = _gauge(
    "slurm_node_memory_allocated_bytes",
    "Memory of a node that is allocated to jobs.",
    "bytes",
    "node",
)
NODE_MEMORY_FREE = _gauge(
    "slurm_node_memory_free_bytes",
    "Free memory of a node in the last report of its slurmd.",
    "bytes",
    "node",
)
NODE_GPUS = _gauge(
    "slurm_node_gpus",
    "Number of a node's GPUs. A slice of a GPU (MIG) counts as one GPU.",
    "GPUs",
    "node",
    "type",
)
NODE_GPUS_ALLOCATED = _gauge(
    "slurm_node_gpus_allocated",
    "Number of a node's GPUs that are allocated to jobs.",
    "GPUs",
    "node",
    "type",
)
NODE_LOAD = _gauge(
    "slurm_node_load",
    "Load average of a node over one minute, in the last report of its slurmd.",
    "processes",
    "node",
)
NODE_DRAINED = _gauge(
    "slurm_node_drained_seconds",
    "Time since a node was drained. This metric is absent if the node is not drained or draining.",
    "seconds",
    *("node", "cause"),
)
NODE_JOBS_FAILED = _gauge(
    "slurm_node_jobs_failed",
    "Number of failed jobs that slurmctld still has on record. Each job counts only for its "
    "first node.",
    "jobs",
    "node",
)

# --- Users' images, from reports of jobs ---------------------------------------------------------

IMAGE_PULLS = _counter(
    "slurmstack_image_pulls_total",
    "Number of images that a node imported for jobs.",
    "images",
    "node",
)
IMAGE_PULL_BYTES = _counter(
    "slurmstack_image_pull_bytes_total",
    "Bytes that a node downloaded to import images.",
    "bytes",
    "node",
)
IMAGE_PULL_SECONDS = _counter(
    "slurmstack_image_pull_duration_seconds_total",
    "Time that a node spent on importing images for jobs.",
    "seconds",
    "node",
)
IMAGE_HITS = _counter(
    "slurmstack_image_hits_total",
    "Number of containers that started from an image in the node's cache, without an import.",
    "containers",
    "node",
)
IMAGE_FAILURES = _counter(
    "slurmstack_image_failures_total",
    "Number of images that a node could not find or import for jobs.",
    "images",
    "node",
)

# --- Jobs ----------------------------------------------------------------------------------------

JOBS = _gauge(
    "slurm_jobs",
    "Number of jobs that slurmctld has on record, by state. Each task of an array counts as "
    "one job.",
    "jobs",
    "state",
)
JOBS_PENDING = _gauge(
    "slurm_jobs_pending",
    "Number of pending jobs. The label `reason` is the reason why Slurm has not started them.",
    "jobs",
    "reason",
)
JOB_NODE = _gauge(
    "slurm_job_node",
    "Always 1, in one series for each node of a running job. Only the largest running jobs have "
    "series.",
    "",
    *("job_id", "node", "partition", "user", "account"),
)


def _waits(whose: str, label: str) -> tuple[Metric, ...]:
    return (
        _gauge(
            f"slurm_{label}_pending_seconds",
            f"Time that pending jobs of {whose} have waited. The label `share` is the "
            "quantile: 0.5 is the median, 1 the longest wait. Includes only jobs that could "
            "start on an empty cluster.",
            "seconds",
            *(label, "share"),
        ),
        _gauge(
            f"slurm_{label}_waited_seconds",
            f"Time that jobs of {whose} waited before they started. The label `share` is the "
            "quantile: 0.5 is the median, 1 the longest wait. Includes only jobs that "
            "started in the last half hour.",
            "seconds",
            *(label, "share"),
        ),
    )


def _of(owner: str) -> tuple[Metric, ...]:
    what = f"the largest {owner}s"
    return (
        _gauge(
            f"slurm_{owner}_jobs", f"Number of jobs of {what}, by state.", "jobs", owner, "state"
        ),
        _gauge(
            f"slurm_{owner}_cpus_allocated",
            f"Number of CPUs that are allocated to jobs of {what}.",
            "CPUs",
            owner,
        ),
        _gauge(
            f"slurm_{owner}_cpus_requested",
            f"Number of CPUs that pending jobs of {what} request. Includes only jobs that "
            "could start on an empty cluster.",
            "CPUs",
            owner,
        ),
        _gauge(
            f"slurm_{owner}_gpus_allocated",
            f"Number of GPUs that are allocated to jobs of {what}.",
            "GPUs",
            owner,
        ),
        _gauge(
            f"slurm_{owner}_gpus_requested",
            f"Number of GPUs that pending jobs of {what} request. Includes only jobs that "
            "could start on an empty cluster.",
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
    "slurm_partition_nodes",
    "Number of a partition's nodes, by the node state that Slurm reports.",
    "nodes",
    "partition",
    "state",
)
PARTITION_JOBS = _gauge(
    "slurm_partition_jobs",
    "Number of a partition's jobs, by state. A job that waits for several partitions counts "
    "in each of them.",
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
                (
                    "requested by those pending jobs of a partition that could start on an empty "
                    "cluster"
                ),
            ),
        )
    )


PARTITION_CPUS = _resource("cpus", "", "CPUs", "CPUs")
PARTITION_MEMORY = _resource("memory", "_bytes", "Memory", "bytes")
PARTITION_GPUS = _resource("gpus", "", "GPUs", "GPUs")

# --- Reservations and licenses -------------------------------------------------------------------

RESERVATION_NODES = _gauge(
    "slurm_reservation_nodes", "Number of nodes in a reservation.", "nodes", "reservation"
)
RESERVATION_START = _gauge(
    "slurm_reservation_start_timestamp_seconds",
    "Time when a reservation starts.",
    "Unix time",
    "reservation",
)
RESERVATION_END = _gauge(
    "slurm_reservation_end_timestamp_seconds",
    "Time when a reservation ends.",
    "Unix time",
    "reservation",
)
LICENSES = _gauge(
    "slurm_licenses", "Number of licenses, free and allocated together.", "licenses", "license"
)
LICENSES_USED = _gauge(
    "slurm_licenses_used", "Number of licenses that are allocated to jobs.", "licenses", "license"
)
LICENSES_FREE = _gauge(
    "slurm_licenses_free", "Number of licenses that jobs can still use.", "licenses", "license"
)
LICENSES_RESERVED = _gauge(
    "slurm_licenses_reserved", "Number of licenses that reservations hold.", "licenses", "license"
)

# --- slurmctld -----------------------------------------------------------------------------------

STATISTICS_START = _gauge(
    "slurm_statistics_start_timestamp_seconds",
    "Time when slurmctld last set its counters to zero. It does so when it starts, and at "
    "midnight UTC.",
    "Unix time",
)
SERVER_THREADS = _gauge(
    "slurm_server_threads",
    "Number of slurmctld's threads that are answering a request. A number that stays high "
    "means that slurmctld is overloaded.",
    "threads",
)
AGENT_QUEUE = _gauge(
    "slurm_agent_queue_length",
    "Number of messages to nodes that slurmctld has not sent yet. It grows if many nodes do not "
    "answer.",
    "messages",
)
DBD_AGENT_QUEUE = _gauge(
    "slurm_dbd_agent_queue_length",
    "Number of accounting records that slurmctld has not sent to slurmdbd yet. It grows while "
    "slurmdbd does not answer.",
    "records",
)
JOBS_SUBMITTED = _counter(
    "slurm_jobs_submitted_total",
    "Number of jobs that users submitted since slurmctld set its counters to zero.",
    "jobs",
)
JOBS_STARTED = _counter(
    "slurm_jobs_started_total",
    "Number of jobs that Slurm started since slurmctld set its counters to zero.",
    "jobs",
)
JOBS_COMPLETED = _counter(
    "slurm_jobs_completed_total",
    "Number of jobs that ended by themselves, with any exit code.",
    "jobs",
)
JOBS_CANCELED = _counter("slurm_jobs_canceled_total", "Number of jobs that were cancelled.", "jobs")
JOBS_FAILED = _counter(
    "slurm_jobs_failed_total",
    "Number of jobs that failed because of an error in slurmd or in Slurm itself.",
    "jobs",
)
CYCLES = _counter(
    "slurm_scheduler_cycles_total", "Number of cycles of the main scheduler.", "cycles"
)
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
    "Number of pending jobs that the main scheduler found in its last cycle.",
    "jobs",
)
BACKFILL_ACTIVE = _gauge(
    "slurm_backfill_active",
    "1 while the backfill scheduler runs a cycle, 0 between two cycles.",
    "",
)
BACKFILL_CYCLES = _counter(
    "slurm_backfill_cycles_total", "Number of cycles of the backfill scheduler.", "cycles"
)
BACKFILL_LAST = _gauge(
    "slurm_backfill_cycle_last_seconds",
    "Duration of the backfill scheduler's last cycle.",
    "seconds",
)
BACKFILL_MEAN = _gauge(
    "slurm_backfill_cycle_mean_seconds",
    "Mean duration of the backfill scheduler's cycles.",
    "seconds",
)
BACKFILL_DEPTH = _gauge(
    "slurm_backfill_depth_last",
    "Number of jobs that the backfill scheduler tried to start in its last cycle.",
    "jobs",
)
BACKFILL_QUEUE = _gauge(
    "slurm_backfill_queue_length",
    "Number of pending jobs that the backfill scheduler found in its last cycle.",
    "jobs",
)
BACKFILL_JOBS = _counter(
    "slurm_backfill_jobs_total", "Number of jobs that the backfill scheduler started.", "jobs"
)
RPCS = _counter(
    "slurm_rpcs_total",
    "Number of remote procedure calls (RPCs) that slurmctld answered.",
    "calls",
    "type",
)
RPC_SECONDS = _counter(
    "slurm_rpc_duration_seconds_total",
    "Time that slurmctld spent on answering remote procedure calls (RPCs).",
    "seconds",
    "type",
)
USER_RPCS = _counter(
    "slurm_user_rpcs_total",
    "Number of remote procedure calls (RPCs) of a user. The calls of a daemon count for the user "
    "that runs it. Only the users whose calls take the most time have series.",
    "calls",
    "user",
)
USER_RPC_SECONDS = _counter(
    "slurm_user_rpc_duration_seconds_total",
    "Time that slurmctld spent on remote procedure calls (RPCs) of a user. The calls of a daemon "
    "count for the user that runs it. Only the users whose calls take the most time have series.",
    "seconds",
    "user",
)

# --- The jail and the volumes in it --------------------------------------------------------------

JAIL_SIZE = _gauge(
    "slurmstack_jail_size_bytes",
    "Size of a file system. The label `volume` is `jail`, or the name of a volume that is mounted "
    "in the jail.",
    "bytes",
    "volume",
)
JAIL_AVAILABLE = _gauge(
    "slurmstack_jail_available_bytes",
    "Free space that users can fill in a file system. The label `volume` is `jail`, or the name "
    "of a volume that is mounted in the jail.",
    "bytes",
    "volume",
)
JAIL_FILES = _gauge(
    "slurmstack_jail_files",
    "Number of files that the file system permits. This metric is absent if the file system "
    "does not limit the number of files.",
    "files",
    "volume",
)
JAIL_FILES_FREE = _gauge(
    "slurmstack_jail_files_free",
    "Number of files that users can still create. This metric is absent if the file system "
    "does not limit the number of files.",
    "files",
    "volume",
)

# --- The exporter itself -------------------------------------------------------------------------

UP = _gauge(
    "slurm_up", "1 if the exporter last read all of Slurm's data without an error, 0 otherwise.", ""
)
READ_UP = _gauge(
    "slurm_exporter_read_up",
    "1 if the exporter's last read of a source of data succeeded, 0 otherwise.",
    "",
    "source",
)
DATA_AGE = _gauge(
    "slurm_exporter_data_age_seconds",
    "Time since the exporter began its last successful read of a source of data.",
    "seconds",
    "source",
)
READ_SECONDS = _gauge(
    "slurm_exporter_read_duration_seconds",
    "Duration of the exporter's last read of a source of data.",
    "seconds",
    "source",
)
READS = _counter(
    "slurm_exporter_reads_total",
    "Number of times that the exporter tried to read a source of data.",
    "reads",
    "source",
)
READ_FAILURES = _counter(
    "slurm_exporter_read_failures_total",
    "Number of times that the exporter could not read a source of data.",
    "reads",
    "source",
)
INTERVAL = _gauge(
    "slurm_exporter_interval_seconds",
    "Time between two reads of a source of data.",
    "seconds",
    "source",
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
