"""All nodes: their resources, the resources that jobs use, and unhealthy nodes."""

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import VariableSort

from monitoring.dashboards import queries
from monitoring.dashboards.parts import (
    Column,
    Query,
    all_of,
    board,
    falling,
    graph,
    rising,
    stat,
    table,
    variable,
)

_CHOSEN = ' and on (node) slurm_node_state{state=~"$state"}'


def _share(resource: str, unit: str = "") -> str:
    return f"sum(slurm_node_{resource}_allocated{unit}) / (sum(slurm_node_{resource}{unit}) > 0)"


def _each(metric: str) -> str:
    return f"max by (node) ({metric}{_CHOSEN})"


DASHBOARD = board(
    "slurmstack-nodes",
    "Nodes",
    "All nodes: their resources, the resources that jobs use, and unhealthy nodes.",
    stat(
        "Nodes",
        "Nodes in Slurm, in any state. The number should equal the number of nodes of all nodesets "
        "in the settings. If it does not, see the dashboard *Cluster health*.",
        units.Short,
        "sum(slurm_nodes)",
    ),
    stat(
        "Ready for jobs",
        "Share of the nodes that accept or run jobs. If the share falls, the dashboard *Cluster "
        "health* shows the causes.",
        units.PercentUnit,
        f'sum(slurm_nodes{{state!~"{queries.OUT_STATES}"}}) / (sum(slurm_nodes) > 0)',
        none="no nodes",
        steps=falling(0.8, 0.95),
    ),
    stat(
        "Idle",
        "Nodes without a job. If many are idle while jobs wait, the jobs request something that "
        "these nodes lack: see *Why jobs wait* on the dashboard *Jobs and queue*.",
        units.Short,
        'sum(slurm_nodes{state="idle"})',
    ),
    stat(
        "CPUs in use",
        "Share of all CPUs that is allocated to jobs. It shows how full the cluster is. It does "
        "not show how busy the CPUs are.",
        units.PercentUnit,
        _share("cpus"),
        none="no nodes",
    ),
    stat(
        "Memory in use",
        "Share of all memory that is allocated to jobs. If it is far above *CPUs in use*, jobs "
        "wait for memory.",
        units.PercentUnit,
        "sum(slurm_node_memory_allocated_bytes) / (sum(slurm_node_memory_bytes) > 0)",
        none="no nodes",
    ),
    stat(
        "GPUs in use",
        "Share of all GPUs that is allocated to jobs. The dashboard *GPUs* shows how busy the GPUs "
        "are.",
        units.PercentUnit,
        _share("gpus"),
        none="no GPUs",
    ),
    table(
        "All nodes",
        "Each node with the resources that Slurm has allocated. A name links to the node's "
        "dashboard. If the load is far above the CPUs in use, jobs run more processes than they "
        "requested CPUs. If the load is far below, the processes of the jobs wait, for example for "
        "files.",
        ["node", "state"],
        Column('max by (node, state) (slurm_node_state{state=~"$state"})'),
        Column(_each("slurm_node_cpus"), "CPUs"),
        Column(_each("slurm_node_cpus_allocated"), "CPUs in use"),
        Column(_each("slurm_node_load"), "Load"),
        Column(_each("slurm_node_memory_bytes"), "Memory", units.BytesIEC),
        Column(_each("slurm_node_memory_allocated_bytes"), "Memory in use", units.BytesIEC),
        Column(f"sum by (node) (slurm_node_gpus{_CHOSEN})", "GPUs"),
        Column(f"sum by (node) (slurm_node_gpus_allocated{_CHOSEN})", "GPUs in use"),
        none="no nodes",
        width=24,
    ),
    graph(
        "CPUs: allocated, and load",
        "CPUs allocated to jobs, and the load of all nodes. If the load is far lower than the "
        "allocated CPUs, jobs request more CPUs than they use. If it is far higher, jobs start "
        "more processes than they requested CPUs.",
        units.Short,
        Query("sum(slurm_node_cpus)", "total"),
        Query("sum(slurm_node_cpus_allocated)", "allocated to jobs"),
        Query("sum(slurm_node_load)", "load"),
        none="no nodes",
    ),
    graph(
        "Memory: allocated",
        "Memory allocated to jobs. If all memory is allocated while CPUs are free, ask users to "
        "request less memory, so that more jobs can start.",
        units.BytesIEC,
        Query("sum(slurm_node_memory_bytes)", "total"),
        Query("sum(slurm_node_memory_allocated_bytes)", "allocated to jobs"),
        none="no nodes",
    ),
    table(
        "Failed jobs, by node",
        "Failed jobs on record, by the first node of each job. A node with far more failed jobs "
        "than the others is probably faulty, even if its checks pass: drain it and inspect it.",
        ["node"],
        Column(
            "topk(20, max by (node) (slurm_node_jobs_failed) > 0)", "Failed", steps=rising(5, 20)
        ),
        sort="Failed",
    ),
    table(
        "Reservations",
        "Nodes that are reserved for users or for maintenance, with the begin and end of each "
        "reservation. Other jobs cannot use reserved nodes: delete a forgotten reservation with "
        "`scontrol delete reservationname=…`.",
        ["reservation"],
        Column("max by (reservation) (slurm_reservation_nodes)", "Nodes"),
        Column(
            "1000 * max by (reservation) (slurm_reservation_start_timestamp_seconds)",
            "Begins",
            units.DateTimeFromNow,
        ),
        Column(
            "1000 * max by (reservation) (slurm_reservation_end_timestamp_seconds)",
            "Ends",
            units.DateTimeFromNow,
        ),
    ),
    variables=[
        all_of(
            variable(
                "state", "State", "label_values(slurm_node_state, state)", VariableSort.NATURAL_ASC
            )
        )
    ],
)
