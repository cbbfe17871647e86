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
    """Return the share of the node's resource that is allocated to jobs."""
    return (
        f"sum(slurm_node_{resource}_allocated{unit}{_SELF})"
        f" / (sum(slurm_node_{resource}{unit}{_SELF}) > 0)"
    )


DASHBOARD = board(
    NODE,
    "One node",
    "State, jobs and machine of a node, and the results of its checks.",
    stat(
        "State",
        "State of the node in Slurm. If it accepts no jobs, *Findings* shows the reason and the "
        "repair.",
        units.NoUnit,
        f"max by (state) (slurm_node_state{_SELF})",
        legend="{{state}}",
        none="not in Slurm",
        shows=BigValueTextMode.NAME,
    ),
    stat(
        "Machine",
        "Kubernetes node on which the pod of this Slurm node runs. If the panel shows `none`, the "
        "pod does not exist or is not scheduled: check it with `kubectl describe pod`.",
        units.NoUnit,
        f"max by (machine) (slurm_node_info{_SELF})",
        legend="{{machine}}",
        none="none",
        shows=BigValueTextMode.NAME,
    ),
    stat(
        "Drained for",
        "Time since the drain, and the cause of the drain. `foreign` means that a person or "
        "another program drained the node: only they can lift such a drain.",
        units.Seconds,
        f"max by (cause) (slurm_node_drained_seconds{_SELF})",
        legend="{{cause}}",
        none="not drained",
        steps=rising(0, 86400),
        shows=BigValueTextMode.VALUE_AND_NAME,
    ),
    stat(
        "CPUs allocated",
        "Share of the node's CPUs that is allocated to jobs. If all CPUs are allocated but hardly "
        "busy, the jobs wait, for example for files.",
        units.PercentUnit,
        _given("cpus"),
        none="not in Slurm",
    ),
    stat(
        "Memory allocated",
        "Share of the node's memory that is allocated to jobs. If all memory is allocated while "
        "CPUs are free, no further job can start on the node.",
        units.PercentUnit,
        _given("memory", "_bytes"),
        none="not in Slurm",
    ),
    stat(
        "GPUs allocated",
        "Share of the node's GPUs that is allocated to jobs. If GPUs are allocated but idle (see "
        "*GPUs*), a job waits, or keeps the GPUs for later.",
        units.PercentUnit,
        _given("gpus"),
        none="no GPUs",
    ),
    timeline(
        "State over time",
        "States of the node over time. If the node is down or drained again and again, repairs do "
        "not fix the fault: drain it permanently, and inspect it.",
        Query(f"max by (state) (slurm_node_state{_SELF})", "{{state}}"),
        {"1": ("in this state", GREEN)},
        none="not in Slurm",
    ),
    table(
        "Findings",
        "Findings of the reconciler, and the last repair step for each. `person` means that the "
        "reconciler cannot repair the fault: inspect the node, and read the reconciler's log.",
        ["finding", "step"],
        Column(f"max by (finding, step) (slurmstack_node_finding{_SELF})"),
    ),
    table(
        "Jobs that ran here",
        "Jobs on the node in the shown time, and the time of each job's last sample. A job's "
        "number links to the job's dashboard. Jobs with few CPUs may be missing: the exporter "
        "reports the jobs with the most CPUs first, up to `monitoring.exporter.jobs` pairs of job "
        "and node. To see more jobs, raise this setting.",
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
        "CPU utilisation of the machine, and the share of the node's CPUs allocated to jobs. If "
        "CPUs are busy without jobs, another program or a leftover process runs there.",
        units.PercentUnit,
        Query(_machine(queries.CPU_USED), "busy"),
        Query(_given("cpus"), "allocated to jobs"),
        highest=1,
    ),
    graph(
        "Memory",
        "Used share of the machine's memory, and the share of the node's memory allocated to jobs. "
        "If memory is in use without jobs, the cause is leftover processes, or files in /dev/shm.",
        units.PercentUnit,
        Query(_machine(queries.MEMORY_USED), "in use"),
        Query(_given("memory", "_bytes"), "allocated to jobs"),
        highest=1,
    ),
    graph(
        "GPUs",
        "Utilisation of each GPU. If one GPU is idle while others are busy, the job does not use "
        "this GPU, or can no longer reach it.",
        units.Percent,
        Query(_by_gpu("DCGM_FI_DEV_GPU_UTIL"), "GPU {{gpu}}"),
        none="no GPUs",
        highest=100,
    ),
    graph(
        "GPU temperature",
        "Temperature of each GPU. A GPU that is much hotter than its neighbours has a cooling "
        "fault: check the cooling of the machine. Near its temperature limit, the GPU slows down. "
        "`check-node` then reports the fault.",
        units.Celsius,
        Query(_by_gpu("DCGM_FI_DEV_GPU_TEMP"), "GPU {{gpu}}"),
        none="no GPUs",
    ),
    graph(
        "Network",
        "Data that the machine receives and sends through Ethernet and InfiniBand. A flat line at "
        "the speed of a card means that the card is the limit. If the rate stays far below this "
        "speed, see the results of the long check `network` or `nccl-pair`.",
        units.BytesPerSecondSI,
        Query(_machine(queries.network("receive")), "received"),
        Query(_machine(queries.network("transmit")), "sent"),
        Query(_machine(queries.infiniband("received")), "received, InfiniBand"),
        Query(_machine(queries.infiniband("transmitted")), "sent, InfiniBand"),
    ),
    graph(
        "Disks",
        "Reads and writes of the machine's local disks. A steady rate without jobs comes from "
        "swapping, or from growing logs.",
        units.BytesPerSecondSI,
        Query(_machine(queries.disk("read")), "read"),
        Query(_machine(queries.disk("written")), "written"),
    ),
    graph(
        "File systems",
        "Used share of each local disk of the machine. At 95 %, the check `disk` drains the node: "
        "look for files of jobs in /tmp, and for old images.",
        units.PercentUnit,
        Query(
            queries.of_one_node(queries.disk_full(queries.CHOSEN, "machine, device"), "device"),
            "{{device}}",
        ),
        highest=1,
    ),
    table(
        "Long checks",
        "Last value of each long check, with the limit of the check and the time of the "
        "measurement. A bad value drains the node: docs/health-long.md describes how to measure "
        "the node again.",
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
