"""One node: its state, its jobs, its machine, and the results of its checks."""

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import BigValueTextMode
from grafana_foundation_sdk.models.dashboard import VariableSort

from monitoring.dashboards import queries
from monitoring.dashboards.parts import (
    GOOD_BAD,
    GREEN,
    NODE,
    Column,
    Query,
    board,
    graph,
    machines,
    rising,
    stat,
    table,
    timeline,
    variable,
)

_SELF = '{node="$node"}'
_JOBS = f"slurm_job_node{_SELF}"


def _machine(of_machines: str) -> str:
    return queries.of_nodes(of_machines, queries.NODE)


def _by_gpu(metric: str) -> str:
    return queries.of_one_node(f"{metric}{{{queries.CHOSEN}}}", "gpu")


def _given(resource: str, unit: str = "") -> str:
    """Share of the node's resource that jobs have."""
    return (
        f"sum(slurm_node_{resource}_allocated{unit}{_SELF})"
        f" / (sum(slurm_node_{resource}{unit}{_SELF}) > 0)"
    )


DASHBOARD = board(
    NODE,
    "One node",
    "A node's state, its jobs, its machine, and what checks say of it.",
    stat(
        "State",
        "The node's state in Slurm. Where it takes no jobs, the findings say why, and what is "
        "done.",
        units.NoUnit,
        f"max by (state) (slurm_node_state{_SELF})",
        legend="{{state}}",
        none="not in Slurm",
        shows=BigValueTextMode.NAME,
    ),
    stat(
        "Machine",
        "The node of Kubernetes that it is on. None: its pod has no place, or is gone.",
        units.NoUnit,
        f"max by (machine) (slurm_node_info{_SELF})",
        legend="{{machine}}",
        none="none",
        shows=BigValueTextMode.NAME,
    ),
    stat(
        "Drained for",
        "Since when it takes no new jobs, and the cause. `foreign` is a drain by a person or "
        "another program, who must lift it.",
        units.Seconds,
        f"max by (cause) (slurm_node_drained_seconds{_SELF})",
        legend="{{cause}}",
        none="not drained",
        steps=rising(0, 86400),
        shows=BigValueTextMode.VALUE_AND_NAME,
    ),
    stat(
        "CPUs given to jobs",
        "Share of its CPUs that jobs have. At 100 % and hardly busy, its jobs wait for something.",
        units.PercentUnit,
        _given("cpus"),
        none="not in Slurm",
    ),
    stat(
        "Memory given to jobs",
        "Share of its memory that jobs have asked for. At 100 % with CPUs free, memory is what "
        "keeps other jobs away.",
        units.PercentUnit,
        _given("memory", "_bytes"),
        none="not in Slurm",
    ),
    stat(
        "GPUs given to jobs",
        "Share of its GPUs that jobs have. Given and not used, below: a job that waits, or holds "
        "them for later.",
        units.PercentUnit,
        _given("gpus"),
        none="no GPUs",
    ),
    timeline(
        "State over time",
        "The state that the node was in. Down or drained again and again is a fault that repairs "
        "do not reach: drain it for good, and have it looked at.",
        Query(f"max by (state) (slurm_node_state{_SELF})", "{{state}}"),
        {"1": ("in this state", GREEN)},
        none="not in Slurm",
    ),
    table(
        "Findings",
        "What the reconciler found on it, and its last step of repair. At `person` it does no "
        "more: look at the node, and at the reconciler's log.",
        ["finding", "step"],
        Column(f"max by (finding, step) (slurmstack_node_finding{_SELF})"),
    ),
    table(
        "Jobs that ran here",
        "Jobs that were on the node in the time that is shown, and when last; a number leads to "
        "all nodes of the job. Small jobs may be missing (`monitoring.exporter.jobs`).",
        ["job_id", "user", "account", "partition"],
        Column(
            "1000 * max by (job_id, user, account, partition)"
            f" (max_over_time(timestamp({_JOBS})[$__range:1m]))",
            "Last seen",
            units.DateTimeFromNow,
        ),
        sort="Last seen",
    ),
    graph(
        "CPUs",
        "How busy the machine's CPUs are, beside the share that jobs have. Busy without jobs: "
        "something else runs there, or was left over.",
        units.PercentUnit,
        Query(_machine(queries.CPU_USED), "busy"),
        Query(_given("cpus"), "given to jobs"),
        highest=1,
    ),
    graph(
        "Memory",
        "Share of the machine's memory in use, beside the share of the node's that jobs have. In "
        "use without jobs: leftovers, or files in /dev/shm.",
        units.PercentUnit,
        Query(_machine(queries.MEMORY_USED), "in use"),
        Query(_given("memory", "_bytes"), "given to jobs"),
        highest=1,
    ),
    graph(
        "GPUs",
        "How much of the time something runs on each GPU. One that is idle beside busy ones is "
        "not used by the job, or lost to it.",
        units.Percent,
        Query(_by_gpu("DCGM_FI_DEV_GPU_UTIL"), "GPU {{gpu}}"),
        none="no GPUs",
        highest=100,
    ),
    graph(
        "GPU temperature",
        "How hot each GPU is. One far above its neighbours has a fault of cooling, and slows down "
        "near its limit: `check-node` tells that.",
        units.Celsius,
        Query(_by_gpu("DCGM_FI_DEV_GPU_TEMP"), "GPU {{gpu}}"),
        none="no GPUs",
    ),
    graph(
        "Network",
        "What the machine receives and sends by Ethernet and InfiniBand. Flat at a card's speed "
        "is a limit; far below what the card can do, see the long check `network` or `nccl-pair`.",
        units.BytesPerSecondSI,
        Query(_machine(queries.network("receive")), "received"),
        Query(_machine(queries.network("transmit")), "sent"),
        Query(_machine(queries.infiniband("received")), "received, InfiniBand"),
        Query(_machine(queries.infiniband("transmitted")), "sent, InfiniBand"),
    ),
    graph(
        "Disks",
        "What the machine reads from and writes to its own disks. A steady stream without jobs is "
        "memory that is swapped, or logs that grow.",
        units.BytesPerSecondSI,
        Query(_machine(queries.disk("read")), "read"),
        Query(_machine(queries.disk("written")), "written"),
    ),
    graph(
        "File systems",
        "How full each of the machine's own disks is. At 95 % the check `disk` drains the node: "
        "see what jobs left in /tmp, and old images.",
        units.PercentUnit,
        Query(
            queries.of_one_node(queries.disk_full(queries.CHOSEN, "machine, device"), "device"),
            "{{device}}",
        ),
        highest=1,
    ),
    table(
        "Long checks",
        "What the node was last measured at, the limit that holds for it, and when. One that is "
        "bad is drained by it; docs/health-long.md says how it is measured again.",
        ["check"],
        Column(f"max by (check) (slurmstack_longcheck_value{_SELF})", "Value"),
        Column(f"max by (check) ({queries.limit(_SELF)})", "Limit"),
        Column(f"min by (check) (slurmstack_longcheck_good{_SELF})", "Verdict", words=GOOD_BAD),
        Column(
            f"1000 * max by (check) (slurmstack_longcheck_timestamp_seconds{_SELF})",
            "Measured",
            units.DateTimeFromNow,
        ),
        none="not measured",
    ),
    variables=[
        variable("node", "Node", "label_values(slurm_node_state, node)", VariableSort.NATURAL_ASC),
        machines(queries.MACHINES_OF_NODE),
    ],
)
