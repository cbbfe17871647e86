"""GPUs: their allocation, utilisation and health."""

from grafana_foundation_sdk.models import units

from monitoring.dashboards import queries
from monitoring.dashboards.parts import Column, Query, board, graph, rising, stat, table
from monitoring.dashboards.queries import ANY, of_nodes

_UTIL = f"DCGM_FI_DEV_GPU_UTIL{{{ANY}}}"
_XID = f"DCGM_FI_DEV_XID_ERRORS{{{ANY}}}"
_TEMPERATURE = f"max by (machine) (DCGM_FI_DEV_GPU_TEMP{{{ANY}}})"
_POWER = queries.of_gpus(f"DCGM_FI_DEV_POWER_USAGE{{{ANY}}}")


def _rows(field: str) -> str:
    return queries.of_gpus(f"DCGM_FI_DEV_{field}{{{ANY}}}")


DASHBOARD = board(
    "slurmstack-gpus",
    "GPUs",
    "GPUs: their allocation, utilisation and health. The figures come from DCGM exporter.",
    stat(
        "Allocated to jobs",
        "Share of the GPUs that is allocated to jobs. If it is low while jobs wait for GPUs, look "
        "for nodes that are out of service.",
        units.PercentUnit,
        "sum(slurm_node_gpus_allocated) / (sum(slurm_node_gpus) > 0)",
        none="no GPUs",
    ),
    stat(
        "Utilisation",
        "Share of time that GPUs are busy, averaged over all GPUs. If it is far below the "
        "allocated share, see *Nodes with allocated but idle GPUs*.",
        units.PercentUnit,
        f"avg({_UTIL}) / 100",
        none="no GPUs",
    ),
    stat(
        "Allocated but idle",
        "Allocated GPUs of nodes on which no GPU was busy for half an hour. The table below lists "
        "the nodes.",
        units.Short,
        "sum(sum by (node) (slurm_node_gpus_allocated) and on (node)"
        f" ({of_nodes(f'max by (machine) (max_over_time({_UTIL}[30m]))')} == 0))"
        f" or 0 * count({_UTIL})",
        none="no GPUs",
        steps=rising(1, 8),
    ),
    stat(
        "Hottest",
        "Temperature of the hottest GPU. Near 90 °C, GPUs slow down: find the node in"
        " *Temperature, by node*, and check its cooling.",
        units.Celsius,
        f"max({_TEMPERATURE})",
        none="no GPUs",
        steps=rising(83, 90),
    ),
    stat(
        "Power",
        "Power that all GPUs together use. If the power falls but the utilisation does"
        " not, a power limit is the cause: see *Power, by node*.",
        units.Watt,
        f"sum({_POWER})",
        none="no GPUs",
    ),
    stat(
        "GPUs with an Xid",
        "GPUs for which the driver has reported an error (Xid) since it was loaded. Programs cause "
        "some Xids (13, 31). For serious Xids, the check `gpu-xid` drains the node: see *Errors, "
        "by node*.",
        units.Short,
        queries.counted(f"max by (machine, gpu) ({_XID}) > 0", f"count({_UTIL})"),
        none="no GPUs",
        steps=rising(1, 8),
    ),
    graph(
        "Utilisation, by node",
        "Share of time that a node's GPUs are busy, on average. *Nodes with allocated but idle "
        "GPUs* lists the nodes that have jobs but stay at 0.",
        units.PercentUnit,
        Query(of_nodes(queries.gpu_used(ANY)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "Memory, by node",
        "Used share of the GPUs' memory. On a node without jobs, only a leftover process can use "
        "it: the check `gpu-busy` drains such a node.",
        units.PercentUnit,
        Query(of_nodes(queries.gpu_memory_used(ANY)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    table(
        "Nodes with allocated but idle GPUs",
        "Nodes whose allocated GPUs were idle for half an hour. Ask the owners of the jobs whether "
        "they still need the GPUs, because other jobs may wait for these GPUs.",
        ["node"],
        Column(
            "sum by (node) (slurm_node_gpus_allocated) > 0 and on (node)"
            f" ({of_nodes(f'max by (machine) (max_over_time({_UTIL}[30m]))')} == 0)",
            "GPUs",
        ),
        sort="GPUs",
    ),
    table(
        "Errors, by node",
        "The highest Xid of each node's GPUs, and memory rows that were replaced or could not be "
        "replaced. NVIDIA's catalogue explains each Xid; the checks drain nodes with serious "
        "errors.",
        ["node"],
        Column(of_nodes(f"max by (machine) ({_XID})"), "Xid"),
        Column(of_nodes(_rows("ROW_REMAP_FAILURE")), "Rows that failed", steps=rising(1, 1)),
        Column(of_nodes(_rows("UNCORRECTABLE_REMAPPED_ROWS")), "Rows replaced"),
        none="no GPUs",
        sort="Xid",
    ),
    graph(
        "Temperature, by node",
        "The hottest GPU of each node. A node that is hotter than others at the same load has a "
        "cooling fault.",
        units.Celsius,
        Query(of_nodes(_TEMPERATURE), "{{node}}"),
        none="no GPUs",
    ),
    graph(
        "Power, by node",
        "Power that the GPUs of each node use. If a node uses less power than others at the same "
        "load, its GPUs are limited: the checks `gpu-power` and `gpu-throttle` show the cause.",
        units.Watt,
        Query(of_nodes(_POWER), "{{node}}"),
        none="no GPUs",
    ),
    graph(
        "Clock, by node",
        "Clock rate of the slowest busy GPU of each node. A slow GPU slows down its whole"
        " job: look for a high temperature, a power limit or a fault of this GPU.",
        units.Hertz,
        Query(
            of_nodes(
                f"1e6 * min by (machine) (DCGM_FI_DEV_SM_CLOCK{{{ANY}}}"
                f" and on (machine, gpu) {_UTIL} > 50)"
            ),
            "{{node}}",
        ),
        none="no busy GPUs",
    ),
    graph(
        "PCIe replays, by node",
        "Retransmissions on the PCIe bus between the node's GPUs and its host. More than"
        " a few per minute indicate a bad slot, riser or cable.",
        "suffix: /min",
        Query(
            of_nodes(
                "60 * "
                + queries.of_gpus(
                    f"rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{ANY}}}[$__rate_interval])"
                )
            ),
            "{{node}}",
        ),
        none="no GPUs",
    ),
)
