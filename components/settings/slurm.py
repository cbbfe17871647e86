"""Settings of slurm.conf and Slurm's other files, except nodes and partitions."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from agents.hostlist import expand
from components.settings.types import (
    Hosts,
    LabelKey,
    Line,
    Model,
    Number,
    ParameterName,
    ProjectFile,
    Scalar,
    SlurmTime,
    Word,
    cross_field,
    duplicates,
    in_cycle,
)

Weight = Annotated[int, Field(ge=0, le=4_294_967_295), Number]

REPEATABLE = frozenset(("downnodes", "epilog", "include", "nodename", "partitionname", "prolog"))
"""Keys of slurm.conf, in lower case, that may occur on several lines."""

_OWNED_KEYS: Mapping[str, str] = {
    "authtype": "use auth.type",
    "clustername": "use cluster_name",
    "credtype": "use auth.type",
    "nodeset": "use nodesets",
    "slurmctldhost": "remove it: the controller's pod determines the value",
    "slurmctldparameters": "use slurm.slurmctld_parameters",
    "slurmctldport": "remove it: the controller's Service determines the value",
    "slurmdport": "remove it: the workers' pods determine the value",
    "slurmdspooldir": "remove it: the workers' pods determine the value",
    "slurmduser": "remove it: the workers' pods determine the value",
    "slurmuser": "remove it: the controller's image determines the value",
    "statesavelocation": "remove it: the controller's volume determines the value",
}
"""Keys of slurm.conf, in lower case, that the stack sets because pods depend on them, and what to
do instead."""

_REPLACED: Final = {"taskepilog": "task_epilog", "taskprolog": "task_prolog"}
"""Settings by the key of slurm.conf, in lower case: a line in `extra` with this key replaces the
setting. Prolog and Epilog are not here, because lines in `extra` only add further programs."""

COMMUNICATION = ("block_null_hash", "block_zero_hash")
"""CommunicationParameters that make each credential valid for only one message."""


_SCHEDULER_PARAMETERS: Final = frozenset(
    """
    allow_zero_lic assoc_limit_stop batch_sched_delay bb_array_stage_cnt bf_allow_magnetic_slot
    bf_busy_nodes bf_continue bf_hetjob_immediate bf_hetjob_prio bf_interval
    bf_job_part_count_reserve bf_licenses bf_max_job_array_resv bf_max_job_assoc bf_max_job_part
    bf_max_job_start bf_max_job_test bf_max_job_user bf_max_job_user_part bf_max_time
    bf_min_age_reserve bf_min_prio_reserve bf_node_space_size bf_one_resv_per_job bf_resolution
    bf_running_job_reserve bf_topopt_enable bf_topopt_iterations bf_window bf_window_linear
    bf_yield_interval bf_yield_sleep build_queue_timeout correspond_after_task_cnt
    default_queue_depth defer defer_batch delay_boot disable_hetjob_steps disable_job_shrink
    enable_hetjob_steps enable_job_state_cache enable_user_top extra_constraints
    ignore_constraint_validation ignore_prefer_validation max_array_tasks max_rpc_cnt
    max_rpc_count max_sched_time max_script_size max_submit_line_size max_switch_wait
    no_backup_scheduling no_env_cache nohold_on_prolog_fail pack_serial_at_end partition_job_depth
    reduce_completing_frag requeue_setup_env_fail salloc_wait_nodes sbatch_wait_nodes
    sched_interval sched_max_job_start sched_min_interval spec_cores_first step_retry_count
    step_retry_time time_min_as_soft_limit whole_hetjob whole_pack
    """.split()  # noqa: SIM905  # a list would take a line for each name
)
"""SchedulerParameters of 24.11, from slurm.conf(5) and the source. Slurm ignores other names."""
_SLURMCTLD_PARAMETERS: Final = frozenset(
    """
    allow_user_triggers cloud_dns conmgr_connect_timeout conmgr_max_connections
    conmgr_read_timeout conmgr_threads conmgr_use_poll conmgr_wait_write_delay
    conmgr_write_timeout disable_triggers enable_configless enable_rpc_queue enable_stepmgr
    idle_on_node_suspend max_dbd_msg_action max_powered_nodes no_quick_restart
    node_reg_mem_percent power_save_interval power_save_min_interval preempt_send_user_signal
    reboot_from_controller rl_bucket_size rl_enable rl_log_freq rl_refill_period rl_refill_rate
    rl_table_size user_resv_delete validate_nodeaddr_threads
    """.split()  # noqa: SIM905  # a list would take a line for each name
)
"""SlurmctldParameters of 24.11, from slurm.conf(5) and the source. Slurm ignores other names."""


def _unknown(key: str, given: Iterable[str], known: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield keys and problems of parameters that Slurm ignores."""
    for name in sorted(given):
        if name.lower() not in known:
            similar = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean '{similar[0]}'?" if similar else "remove it"
            yield f"{key}.{name}", f"is unknown to Slurm 24.11, which ignores it; {hint}"


class Scheduler(Model):
    """Scheduling of jobs by slurmctld."""

    DEFAULTS: ClassVar[dict[str, str | int | bool]] = {
        "batch_sched_delay": 1,
        "bf_continue": True,
        "bf_max_job_test": 1000,
        "bf_max_time": 60,
        "extra_constraints": True,
        "max_rpc_cnt": 32,
        "nohold_on_prolog_fail": True,
    }
    """Values from experience on large clusters. Slurm considers a new batch job only when
    `batch_sched_delay` has passed, so this time is shorter here than Slurm's three seconds.
    `defer_batch` is not among these values: with it, the nodes of an ended job would stay idle for
    up to this time while other jobs wait.

    `max_rpc_cnt` is half the number of threads that answer RPCs: `conmgr_threads`, by default 64
    (source: slurm.conf(5), 24.11). The manual's entry for `max_rpc_cnt` still assumes 256 threads,
    which slurmctld never reaches.
    """

    type: Literal["backfill", "builtin"] = "backfill"
    """backfill: a job may start early if it delays no job before it; builtin: strictly in order."""
    parameters: dict[ParameterName, Scalar] = {}
    """SchedulerParameters, such as `bf_max_time: 120`; they override the stack's defaults. true
    sets a flag, false removes a default."""

    def effective(self) -> dict[str, str | int | bool]:
        """Return the defaults, overridden by the chosen parameters."""
        return {**self.DEFAULTS, **self.parameters}


class Preemption(Model):
    """Preemption of jobs by other jobs."""

    type: Literal["none", "partition_prio", "qos"] = "none"
    """Jobs that can be preempted. none: no jobs; partition_prio: jobs of a lower priority_tier;
    qos: jobs of a QOS that another QOS has in `preempt`, which requires accounting."""
    mode: Literal["requeue", "cancel", "suspend"] = "requeue"
    """Action on preempted jobs."""


class Timeouts(Model):
    """Timeouts in seconds; 0 disables `inactive` and `wait`."""

    message: Annotated[int, Field(ge=1, le=600), Number] = 60
    """Time that a daemon or client waits for a response."""
    tcp: Annotated[int, Field(ge=1, le=600), Number] = 15
    """Time to set up a connection."""
    slurmctld: Annotated[int, Field(ge=10, le=65533), Number] = 180
    """Longest time without a response from slurmctld."""
    slurmd: Annotated[int, Field(ge=10, le=65533), Number] = 180
    """Longest time without a response from a node; Slurm then sets the node to down."""
    kill_wait: Annotated[int, Field(ge=1, le=65533), Number] = 30
    """Time between SIGTERM and SIGKILL for a job at its time limit."""
    unkillable_step: Annotated[int, Field(ge=1, le=65533), Number] = 600
    """Time that killed processes have to end, before Slurm drains the node; at least five times
    `message`."""
    inactive: Annotated[int, Field(ge=0, le=65533), Number] = 0
    """Longest time without a response from salloc; 0: no limit."""
    wait: Annotated[int, Field(ge=0, le=65533), Number] = 0
    """Time that a step's other tasks may continue after its first task has ended; 0: no limit."""
    complete: Annotated[int, Field(ge=0, le=65533), Number] = 0
    """Time that new jobs wait for the nodes of a completing job."""
    min_job_age: Annotated[int, Field(ge=2, le=65533), Number] = 1800
    """Time that slurmctld keeps and shows ended jobs."""

    @model_validator(mode="after")
    def _unkillable_leaves_time_for_messages(self) -> Self:
        if self.unkillable_step < 5 * self.message:
            raise cross_field(
                "unkillable_step",
                f"{self.unkillable_step}: expected at least {5 * self.message}, which is "
                f"five times message ({self.message}); raise this number, or lower 'message'",
            )
        return self


class Priority(Model):
    """The order of the queue."""

    type: Literal["basic", "multifactor"] = "basic"
    """basic: first come, first served; multifactor: weighted factors, such as age or size."""
    age: Weight = 0
    """Weight of the time in the queue."""
    association: Weight = 0
    """Weight of the association's priority; requires accounting."""
    fairshare: Weight = 0
    """Weight of the fair-share factor, which depends on recent usage; requires accounting."""
    job_size: Weight = 0
    """Weight of the job's size."""
    partition: Weight = 0
    """Weight of the partition's priority_job_factor."""
    qos: Weight = 0
    """Weight of the QOS's priority; requires accounting."""
    tres: dict[Literal["cpu", "mem", "node"], Weight] = {}
    """Weights of the requested resources."""
    max_age: SlurmTime = "7-00:00:00"
    """Time in the queue at which `age` reaches its full weight."""
    decay_half_life: SlurmTime = "7-00:00:00"
    """Half-life of past usage."""
    favor_small: bool = False
    """Let `job_size` favour small jobs."""

    @model_validator(mode="after")
    def _weights_have_an_effect(self) -> Self:
        chosen = self.model_fields_set - {"type"}
        if self.type == "basic" and chosen:
            name = min(chosen)
            raise cross_field(
                name,
                f"{getattr(self, name)}: has no effect, because slurm.priority.type is 'basic'; "
                f"set slurm.priority.type to 'multifactor', or remove {name}",
            )
        return self


_LUA_FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")


class _Source(Model):
    """A script: its text, or a file in the project."""

    text: str | None = None
    file: ProjectFile | None = None
    """Path of the script, relative to the project; read at deploy time."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise cross_field(
                "text", "expected exactly one of 'text' and 'file'; remove one of them, or add one"
            )
        problem = self.problem(self.text) if self.text is not None else None
        if problem:
            raise cross_field("text", f"'{(self.text or '')[:40]}': {problem}")
        return self

    def problem(self, text: str) -> str | None:
        """Return the problem with the script's text, or None."""
        raise NotImplementedError


class Script(_Source):
    """A script that begins with `#!`: its text, or a file in the project."""

    def problem(self, text: str) -> str | None:
        return (
            None
            if text.startswith("#!")
            else ("expected a script that begins with '#!', such as '#!/bin/sh'")
        )


class Lua(_Source):
    """A Lua script with the functions that slurmctld calls: its text, or a file in the project."""

    def problem(self, text: str) -> str | None:
        missing = [name for name in _LUA_FUNCTIONS if name not in text]
        return (
            (
                f"the script lacks the function {missing[0]}, which slurmctld calls; add this "
                "function"
            )
            if missing
            else None
        )


LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "region": ("topology.kubernetes.io/region",),
    "zone": ("topology.kubernetes.io/zone",),
    "core": (
        "network.topology.nvidia.com/core",  # topograph
        "topology.k8s.aws/network-node-layer-1",
        "topology.nebius.com/tier-3",
    ),
    "spine": (
        "network.topology.nvidia.com/spine",
        "topology.k8s.aws/network-node-layer-2",
        "topology.nebius.com/tier-2",
        "cloud.google.com/gce-topology-block",
        "oci.oraclecloud.com/host.network_block_id",
    ),
    "rack": ("topology.kubernetes.io/rack", "oci.oraclecloud.com/host.rack_id"),
    "leaf": (
        "network.topology.nvidia.com/leaf",
        "topology.k8s.aws/network-node-layer-3",
        "topology.nebius.com/tier-1",
        "cloud.google.com/gce-topology-subblock",
    ),
    "nvlink": (
        "nvidia.com/gpu.clique",  # NVIDIA's GPU operator
        "network.topology.nvidia.com/accelerator",
        "topology.k8s.aws/ultraserver-id",
        "topology.nebius.com/tier-0",
    ),
}
"""Names of levels of the network. For each level: keys of labels of Kubernetes nodes. The value of
such a label names the part of the network that the node is in."""


class Switch(Model):
    """A switch above other switches, or above nodes."""

    name: Word
    switches: tuple[Word, ...] = ()
    """Names of the switches below this one."""
    nodes: Hosts | None = None
    """Nodes below this switch, such as 'gpu-[0-7]'."""
    nodesets: tuple[str, ...] = ()
    """Nodesets whose nodes are all below this switch."""

    @model_validator(mode="after")
    def _has_one_kind_of_children(self) -> Self:
        leaf = bool(self.nodes or self.nodesets)
        if leaf == bool(self.switches):
            raise cross_field(
                "name",
                f"'{self.name}': a switch is above either other switches or nodes; set "
                "either 'switches', or at least one of 'nodes' and 'nodesets', but not both",
            )
        return self


class Block(Model):
    """A group of nodes with a fast network."""

    name: Word
    nodes: Hosts | None = None
    """Nodes in the block, such as 'gpu-[0-7]'."""
    nodesets: tuple[str, ...] = ()
    """Nodesets whose nodes are all in the block."""

    @model_validator(mode="after")
    def _has_nodes(self) -> Self:
        if not (self.nodes or self.nodesets):
            raise cross_field(
                "name", f"block '{self.name}' has no nodes; set 'nodes' or 'nodesets'"
            )
        return self


class Topology(Model):
    """The network between nodes, for multi-node jobs. Only static nodesets can be in it."""

    kind: Literal["none", "block", "tree"] = "none"
    labels: tuple[LabelKey, ...] = Field(default=(), max_length=8)
    """Levels of the network from top to bottom, if labels of Kubernetes nodes define the topology.
    A level is a name, such as 'zone', or the key of a label. With kind: block, the last level is
    the block."""
    switches: tuple[Switch, ...] = ()
    """Switches, for kind tree."""
    blocks: tuple[Block, ...] = ()
    """Blocks, for kind block."""
    block_sizes: tuple[Annotated[int, Field(ge=1, le=65536), Number], ...] = ()
    """Sizes, in nodes, of the units in which Slurm plans jobs: first of a block, then of groups of
    blocks. Each size is the first size times 1, 2, 4, …; by default the size of the smallest
    block."""

    @model_validator(mode="after")
    def _parts_fit_kind(self) -> Self:
        parts = {
            "tree": ("labels", "switches"),
            "block": ("labels", "blocks", "block_sizes"),
            "none": (),
        }
        for name in ("labels", "switches", "blocks", "block_sizes"):
            if getattr(self, name) and name not in parts[self.kind]:
                raise cross_field(
                    name,
                    f"has no effect, because slurm.topology.kind is '{self.kind}'; remove "
                    f"'{name}', or change 'kind'",
                )
        if self.kind == "tree" and not (self.switches or self.labels):
            raise cross_field(
                "switches",
                "is required, because slurm.topology.kind is 'tree'; add 'switches', or "
                "'labels' instead",
            )
        if self.kind == "block" and not (self.blocks or self.labels):
            raise cross_field(
                "blocks",
                "is required, because slurm.topology.kind is 'block'; add 'blocks', or "
                "'labels' instead",
            )
        return self

    @model_validator(mode="after")
    def _labels_are_alone_and_unique(self) -> Self:
        if not self.labels:
            return self
        for name in ("switches", "blocks"):
            if getattr(self, name):
                raise cross_field(
                    "labels", f"cannot be combined with '{name}'; remove one of the two settings"
                )
        for key in duplicates(key for keys in self.levels() for key in keys):
            raise cross_field(
                "labels",
                f"two entries of this list stand for the label '{key}'; keep only one of them",
            )
        return self

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Return the keys of each level's labels, from top to bottom."""
        return tuple(LEVELS.get(level, (level,)) for level in self.labels)

    @model_validator(mode="after")
    def _switches_are_a_forest(self) -> Self:
        names = {switch.name for switch in self.switches}
        children = [child for switch in self.switches for child in switch.switches]
        _unique("switches", (switch.name for switch in self.switches))
        for child in children:
            if child not in names:
                raise cross_field(
                    "switches",
                    f"'{child}' is not a switch; add a switch with this name, or correct the name",
                )
        for child in duplicates(children):
            raise cross_field(
                "switches",
                f"switch '{child}' is listed twice in the lists 'switches' of other "
                "switches; list it only once",
            )
        if name := in_cycle({switch.name: switch.switches for switch in self.switches}):
            raise cross_field(
                "switches",
                f"'{name}' is below itself, directly or through other switches; remove '{name}' "
                "from the list 'switches' that contains it",
            )
        return self

    @model_validator(mode="after")
    def _blocks_fit_sizes(self) -> Self:
        _unique("blocks", (block.name for block in self.blocks))
        for size in self.block_sizes:
            factor = size / self.block_sizes[0]
            # slurm.conf(5): each further size is the base size times a power of two.
            if factor < 1 or not math.log2(factor).is_integer():
                raise cross_field(
                    "block_sizes",
                    f"{size}: expected the first size, {self.block_sizes[0]}, multiplied by 1, 2, "
                    "4, 8 or a higher power of two",
                )
        return self

    def groups(self) -> tuple[Switch | Block, ...]:
        """Return the switches or blocks that contain nodes."""
        leaves = tuple(switch for switch in self.switches if not switch.switches)
        return (*leaves, *self.blocks)


def _unique(field: str, names: Iterable[str]) -> None:
    for name in duplicates(names):
        raise cross_field(field, f"two entries are named '{name}'; give each a unique name")


PrivateKind = Literal[
    "accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"
]


Limit = Literal["AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK"]
"""Names of process limits (source: slurm.conf(5), PropagateResourceLimits)."""


class Slurm(Model):
    """slurm.conf and Slurm's other files."""

    scheduler: Scheduler = Field(default_factory=Scheduler)
    preemption: Preemption = Field(default_factory=Preemption)
    timeouts: Timeouts = Field(default_factory=Timeouts)
    priority: Priority = Field(default_factory=Priority)
    max_jobs: Annotated[int, Field(ge=1, le=2_000_000), Number] = 20_000
    """Maximum number of jobs that slurmctld keeps at the same time, including ended jobs."""
    prolog: Script | None = None
    """Script that runs as root on each node before a job."""
    epilog: Script | None = None
    """Script that runs as root on each node after a job."""
    task_prolog: Script | None = None
    """Script that runs as the user before each task, in the jail."""
    task_epilog: Script | None = None
    """Script that runs as the user after each task, in the jail."""
    job_submit_lua: Lua | None = None
    """Lua script that inspects each submitted job, and may change or refuse it."""
    topology: Topology = Field(default_factory=Topology)
    slurmctld_parameters: dict[ParameterName, Scalar] = {}
    """Further SlurmctldParameters, such as `max_dbd_msg_action: exit`; true sets a flag."""
    private_data: tuple[PrivateKind, ...] = ()
    """Categories in which users see only their own entries; Slurm's operators see all entries."""
    propagated_limits: tuple[Limit, ...] = ()
    """Process limits that jobs inherit from the submitting shell, such as `NOFILE`. By default jobs
    have the limits of their node."""
    cgroups: Literal["auto", "required", "disabled"] = "auto"
    """Confine jobs to the CPUs, memory, swap and devices that they requested. auto: as far as
    the node supports this; required: a node without this support accepts no jobs; disabled: only
    the pod's limits apply."""
    extra: dict[
        Literal[
            "acct_gather.conf",
            "cgroup.conf",
            "gres.conf",
            "helpers.conf",
            "job_container.conf",
            "mpi.conf",
            "oci.conf",
            "plugstack.conf",
            "slurm.conf",
            "topology.conf",
        ],
        tuple[Line, ...],
    ] = {}
    """Further lines of Slurm's files. In slurm.conf, a key overrides the stack's value."""

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield keys and problems of parameters that Slurm ignores."""
        scheduler, slurmctld = self.scheduler.parameters, self.slurmctld_parameters
        yield from _unknown("slurm.scheduler.parameters", scheduler, _SCHEDULER_PARAMETERS)
        yield from _unknown("slurm.slurmctld_parameters", slurmctld, _SLURMCTLD_PARAMETERS)

    def confines(self) -> bool:
        """Return whether Slurm creates cgroups for jobs."""
        return self.cgroups != "disabled"

    @model_validator(mode="after")
    def _labels_write_topology_conf(self) -> Self:
        if self.topology.labels and "topology.conf" in self.extra:
            raise cross_field(
                "extra.topology.conf",
                "has no effect, because slurm.topology.labels is set; remove one of the two",
            )
        return self

    @model_validator(mode="after")
    def _extra_keys_are_free(self) -> Self:
        keys = [key_of(line) for line in self.extra.get("slurm.conf", ())]
        for key in keys:
            if key in _OWNED_KEYS:
                raise cross_field(
                    "extra.slurm.conf", f"'{key}' is reserved for the stack; {_OWNED_KEYS[key]}"
                )
        for key in duplicates(key for key in keys if key not in REPEATABLE):
            raise cross_field("extra.slurm.conf", f"two lines set '{key}'; keep one")
        return self

    @model_validator(mode="after")
    def _scripts_have_one_source(self) -> Self:
        for line in self.extra.get("slurm.conf", ()):
            field = _REPLACED.get(key_of(line))
            if field and getattr(self, field):
                raise cross_field(
                    "extra.slurm.conf",
                    f"'{line}': replaces slurm.{field}, which then never runs; remove one of them",
                )
        return self

    @model_validator(mode="after")
    def _credentials_are_for_one_message(self) -> Self:
        for line in self.extra.get("slurm.conf", ()):
            if key_of(line) == "communicationparameters" and (
                missing := [name for name in COMMUNICATION if name not in line.partition("#")[0]]
            ):
                raise cross_field(
                    "extra.slurm.conf",
                    f"'{line}': add {' and '.join(missing)}; otherwise anyone who gets a "
                    "credential can send any message with it",
                )
        return self

    @model_validator(mode="after")
    def _slurm_allocates_memory(self) -> Self:
        for line in self.extra.get("slurm.conf", ()):
            setting = line.partition("#")[0]
            if key_of(line) == "selecttypeparameters" and "memory" not in setting.lower():
                raise cross_field(
                    "extra.slurm.conf",
                    f"'{line}': use a value with memory, such as CR_Core_Memory; otherwise nodes"
                    " with suspended jobs count as empty, and their pods may be deleted",
                )
        return self


def key_of(line: str) -> str:
    """Return the key of a line of slurm.conf, in lower case; empty for a comment."""
    return line.split("#", 1)[0].partition("=")[0].split(" ", 1)[0].strip().lower()


def hosts_of(group: Switch | Block) -> tuple[str, ...]:
    """Return the nodes in the field `nodes` of a switch or a block."""
    return expand(group.nodes) if group.nodes else ()
