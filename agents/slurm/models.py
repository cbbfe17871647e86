"""Fields of Slurm's nodes, jobs, partitions, reservations and statistics that the agents use.

Memory is in MiB and times are in UTC, unless a field says otherwise. Sets of nodes are hostlist
expressions. If Slurm no longer sends a field, parsing fails; no field has a default.
"""

from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field

from agents.slurm.dataparser import Answer, Flags, Id, Number, Time, limit


class Record(BaseModel):
    """Record of Slurm. Tests create records with the Python names of the fields."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class Node(Record):
    name: str
    state: Flags
    """The base state and its flags, such as IDLE and DRAIN."""
    reason: str
    reason_time: Time = Field(validation_alias="reason_changed_at")
    reason_user: str = Field(validation_alias="reason_set_by_user")
    started: Time = Field(validation_alias="slurmd_start_time")
    """Time of slurmd's first registration after it read its configuration."""
    last_busy: Time
    """Time at which the node last had a job."""
    cpus: int
    alloc_cpus: int
    memory: int = Field(validation_alias="real_memory")
    alloc_memory: int
    gres: str
    gres_used: str
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    comment: str
    extra: str
    machine: str = Field(validation_alias="instance_id")
    """Kubernetes node on which slurmd last ran, or ""."""

    @property
    def is_allocated(self) -> bool:
        """Whether jobs hold CPUs or memory of the node. A suspended job holds only memory."""
        return bool(self.alloc_cpus or self.alloc_memory)

    @property
    def has_jobs(self) -> bool:
        """Whether the node has jobs that run, are suspended, or are completing."""
        return self.is_allocated or "COMPLETING" in self.state


class Job(Record):
    """Job, or task of an array. All tasks that have not started yet share one record."""

    id: int = Field(validation_alias="job_id")
    array_id: Id = Field(validation_alias="array_job_id")
    array_task: Number = Field(validation_alias="array_task_id")
    array_tasks: str = Field(validation_alias="array_task_string")
    """Tasks that have not started yet, such as `1-5%2`."""
    name: str
    user: str = Field(validation_alias="user_name")
    """Empty if slurmrestd cannot resolve the uid."""
    uid: int = Field(validation_alias="user_id")
    account: str
    partition: str
    state: Flags = Field(validation_alias="job_state")
    reason: str = Field(validation_alias="state_reason")
    nodes: str
    submit_time: Time
    start_time: Time
    """Start of the job; for a pending job, the start that Slurm expects."""
    end_time: Time
    """End of the job; for a running job, the time at which its time limit expires."""
    cpus: Number
    memory_per_node: Number
    memory_per_cpu: Number
    tres_requested: str = Field(validation_alias="tres_req_str")
    tres_allocated: str = Field(validation_alias="tres_alloc_str")
    exit_code: Number = Field(validation_alias=AliasPath("exit_code", "return_code"))
    signal: Id = Field(validation_alias=AliasPath("exit_code", "signal", "id"))
    requeues: int = Field(validation_alias="restart_cnt")
    comment: str


class JobState(Record):
    """State of a job, without its other fields."""

    id: int = Field(validation_alias="job_id")
    state: Flags


class Partition(Record):
    name: str
    state: Flags = Field(validation_alias=AliasPath("partition", "state"))
    nodesets: str = Field(validation_alias="node_sets")
    nodes: str = Field(validation_alias=AliasPath("nodes", "configured"))
    node_count: int = Field(validation_alias=AliasPath("nodes", "total"))
    cpus: int = Field(validation_alias=AliasPath("cpus", "total"))
    max_time: Number = Field(validation_alias=AliasPath("maximums", "time"))
    """Minutes; None for no limit."""
    max_nodes: Number = Field(validation_alias=AliasPath("maximums", "nodes"))


class Reservation(Record):
    name: str
    nodes: str = Field(validation_alias="node_list")
    node_count: int
    start_time: Time
    end_time: Time
    flags: Flags
    partition: str
    users: str
    accounts: str
    tres: str


class Calls(Record):
    """Remote procedure calls of one type or user, since the start of slurmctld's statistics."""

    name: str = Field(validation_alias=AliasChoices("message_type", "user"))
    count: int
    average_time: Number
    """Microseconds."""
    total_time: int
    """Microseconds."""


class CallsOfUser(Calls):
    uid: int = Field(validation_alias="user_id")
    """User ID, known even if the user has no name."""


class Statistics(Record):
    """Statistics of `sdiag`. The times of cycles are in microseconds."""

    since: Time = Field(validation_alias="req_time_start")
    server_threads: int = Field(validation_alias="server_thread_count")
    agent_queue: int = Field(validation_alias="agent_queue_size")
    dbd_agent_queue: int = Field(validation_alias="dbd_agent_queue_size")
    jobs_submitted: int
    jobs_started: int
    jobs_completed: int
    jobs_canceled: int
    jobs_failed: int
    jobs_pending: int
    jobs_running: int
    schedule_cycle_last: int
    schedule_cycle_max: int
    schedule_cycle_mean: int
    schedule_cycles: int = Field(validation_alias="schedule_cycle_total")
    schedule_queue: int = Field(validation_alias="schedule_queue_length")
    backfill_active: bool = Field(validation_alias="bf_active")
    backfill_jobs: int = Field(validation_alias="bf_backfilled_jobs")
    backfill_cycles: int = Field(validation_alias="bf_cycle_counter")
    backfill_cycle_last: int = Field(validation_alias="bf_cycle_last")
    backfill_cycle_mean: int = Field(validation_alias="bf_cycle_mean")
    backfill_depth_last: int = Field(validation_alias="bf_last_depth")
    backfill_queue: int = Field(validation_alias="bf_queue_len")
    calls_by_type: tuple[Calls, ...] = Field(validation_alias="rpcs_by_message_type")
    calls_by_user: tuple[CallsOfUser, ...] = Field(validation_alias="rpcs_by_user")


class Ping(Record):
    """Result of a ping of one slurmctld by slurmrestd."""

    host: str = Field(validation_alias="hostname")
    mode: str
    """`primary`, `backup1` and so on."""
    pinged: str
    """UP or DOWN. A slurmctld that refuses the token also has the state DOWN."""

    @property
    def up(self) -> bool:
        return self.pinged == "UP"


class JobRequest(BaseModel):
    """Batch job to submit. None means Slurm's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    script: str
    """Script with its `#!` line. slurmrestd ignores `#SBATCH` lines."""
    directory: str
    """Working directory, and the base of a relative `output`."""
    environment: tuple[str, ...] = ("PATH=/usr/local/bin:/usr/bin:/bin",)
    """At least one variable in the form `NAME=value`; Slurm refuses a job without variables."""
    partition: str | None = None
    account: str | None = None
    reservation: str | None = None
    qos: str | None = None
    wckey: str | None = None
    licenses: str | None = None
    constraints: str | None = None
    """Features of the nodes, such as `h100&nvlink`."""
    user_id: int | None = None
    """The job's owner. Only SlurmUser may submit jobs for others."""
    group_id: int | None = None
    nodes: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    on_nodes: tuple[str, ...] = ()
    """Names of nodes that the job requires."""
    excluded_nodes: tuple[str, ...] = ()
    exclusive: bool = False
    tasks: int | None = None
    cpus_per_task: int | None = None
    memory_per_node: int | None = None
    """MiB."""
    memory_per_cpu: int | None = None
    """MiB."""
    time_limit: int | None = None
    """Minutes."""
    priority: int | None = None
    """Priority that replaces the one that Slurm computes. Only operators may set it."""
    gres_per_node: str | None = None
    """GRES of each node, such as `gres/gpu:2`."""
    gres_per_task: str | None = None
    array: str | None = None
    hold: bool = False
    requeue: bool | None = None
    """Whether Slurm may start the job again."""
    output: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    """Comment that only SlurmUser can set."""
    control_environment: tuple[str, ...] = ()
    """Variables in the form `NAME=value` of the prolog and epilog. Their names there begin with
    `SPANK_`."""

    def body(self) -> Answer:
        wanted: dict[str, Any] = {
            "name": self.name,
            "script": self.script,
            "current_working_directory": self.directory,
            "environment": list(self.environment),
            "partition": self.partition,
            "account": self.account,
            "reservation": self.reservation,
            "qos": self.qos,
            "wckey": self.wckey,
            "licenses": self.licenses,
            "constraints": self.constraints,
            "user_id": None if self.user_id is None else str(self.user_id),
            "group_id": None if self.group_id is None else str(self.group_id),
            "nodes": None if self.nodes is None else str(self.nodes),
            "minimum_nodes": self.min_nodes,
            "maximum_nodes": self.max_nodes,
            "required_nodes": list(self.on_nodes) or None,
            "excluded_nodes": list(self.excluded_nodes) or None,
            "shared": ["none"] if self.exclusive else None,
            "tasks": self.tasks,
            "cpus_per_task": self.cpus_per_task,
            "memory_per_node": _limit(self.memory_per_node),
            "memory_per_cpu": _limit(self.memory_per_cpu),
            "time_limit": _limit(self.time_limit),
            "priority": _limit(self.priority),
            "tres_per_node": self.gres_per_node,
            "tres_per_task": self.gres_per_task,
            "array": self.array,
            "hold": self.hold,
            "requeue": self.requeue,
            "standard_output": self.output,
            "comment": self.comment,
            "admin_comment": self.admin_comment,
            "spank_environment": list(self.control_environment) or None,
        }
        return {"job": {key: value for key, value in wanted.items() if value is not None}}


def _limit(value: int | None) -> Answer | None:
    return None if value is None else limit(value)
