"""All nodes: their resources, the resources that jobs have, and unhealthy nodes."""

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
    "All nodes: what they have, what jobs have of it, and which of them are not well.",
    stat(
        "Nodes",
        "Nodes that Slurm knows of, in whatever state. It should be what the settings ask for.",
        units.Short,
        "sum(slurm_nodes)",
    ),
    stat(
        "Ready for jobs",
        "Share of the nodes that take jobs, or have them. When it falls, the cluster's health "
        "says what takes nodes away.",
        units.PercentUnit,
        f'sum(slurm_nodes{{state!~"{queries.OUT_STATES}"}}) / (sum(slurm_nodes) > 0)',
        none="no nodes",
        steps=falling(0.8, 0.95),
    ),
    stat(
        "Idle",
        "Nodes without any job. Many while jobs wait: the jobs ask for something that these do "
        "not have; see why jobs wait.",
        units.Short,
        'sum(slurm_nodes{state="idle"})',
    ),
    stat(
        "CPUs in use",
        "Share of all nodes' CPUs that jobs have. It says how full the cluster is, not how busy.",
        units.PercentUnit,
        _share("cpus"),
        none="no nodes",
    ),
    stat(
        "Memory in use",
        "Share of all nodes' memory that jobs have asked for. Far above that of the CPUs: memory "
        "is what the queue waits for.",
        units.PercentUnit,
        "sum(slurm_node_memory_allocated_bytes) / (sum(slurm_node_memory_bytes) > 0)",
        none="no nodes",
    ),
    stat(
        "GPUs in use",
        "Share of all nodes' GPUs that jobs have. What they do with them is on the dashboard of "
        "GPUs.",
        units.PercentUnit,
        _share("gpus"),
        none="no GPUs",
    ),
    table(
        "All nodes",
        "Each node with what jobs have of it, as Slurm counts it; a name leads to all that is "
        "known of it. A load far above its CPUs is more processes than jobs asked for; far below, "
        "jobs that wait.",
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
        "CPUs: given to jobs, and at work",
        "CPUs that jobs have, and the load of all nodes. Load far below says that jobs ask for "
        "more than they use; far above, that they start more than they asked for.",
        units.Short,
        Query("sum(slurm_node_cpus)", "all"),
        Query("sum(slurm_node_cpus_allocated)", "in use by jobs"),
        Query("sum(slurm_node_load)", "load"),
        none="no nodes",
    ),
    graph(
        "Memory: given to jobs",
        "Memory that jobs have asked for. Where all of it is given away while CPUs are free, jobs "
        "that ask for less would start.",
        units.BytesIEC,
        Query("sum(slurm_node_memory_bytes)", "all"),
        Query("sum(slurm_node_memory_allocated_bytes)", "in use by jobs"),
        none="no nodes",
    ),
    table(
        "Jobs that failed, by node",
        "Jobs on record that failed with this as their first node. One node far above the others "
        "is likely to be at fault, whatever its checks say: drain it and look.",
        ["node"],
        Column(
            "topk(20, max by (node) (slurm_node_jobs_failed) > 0)", "Failed", steps=rising(5, 20)
        ),
        sort="Failed",
    ),
    table(
        "Reservations",
        "Nodes that are kept for somebody, or for work on them, and when. A reservation that "
        "nobody remembers keeps nodes from jobs: `scontrol delete reservationname=…`.",
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
