"""GPUs: whether jobs have them, whether they are busy, and whether they are healthy."""

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
    "GPUs: whether they are given away, whether they work, and whether they are well. Figures are "
    "DCGM exporter's.",
    stat(
        "Given to jobs",
        "Share of the GPUs that jobs have. Low while jobs wait for GPUs: see the nodes that are "
        "out.",
        units.PercentUnit,
        "sum(slurm_node_gpus_allocated) / (sum(slurm_node_gpus) > 0)",
        none="no GPUs",
    ),
    stat(
        "At work",
        "How much of the time something runs on a GPU, over all of them. Far below what is given "
        "to jobs: see the nodes that hold GPUs and do not use them.",
        units.PercentUnit,
        f"avg({_UTIL}) / 100",
        none="no GPUs",
    ),
    stat(
        "Given and idle",
        "GPUs of nodes on which jobs have GPUs, and nothing ran on any of them for half an hour. "
        "The table below names the nodes.",
        units.Short,
        "sum(sum by (node) (slurm_node_gpus_allocated) and on (node)"
        f" ({of_nodes(f'max by (machine) (max_over_time({_UTIL}[30m]))')} == 0))"
        f" or 0 * count({_UTIL})",
        none="no GPUs",
        steps=rising(1, 8),
    ),
    stat(
        "Hottest",
        "Temperature of the hottest GPU. Near 90 °C they slow down: see which node it is, and its "
        "neighbours in the rack.",
        units.Celsius,
        f"max({_TEMPERATURE})",
        none="no GPUs",
        steps=rising(83, 90),
    ),
    stat(
        "Power",
        "What all GPUs draw together. It falls with their work; a fall alone is a limit on power.",
        units.Watt,
        f"sum({_POWER})",
        none="no GPUs",
    ),
    stat(
        "With an Xid",
        "GPUs that met an error since the driver was loaded. Some are a job's own fault (13, 31); "
        "others drain the node: see the table.",
        units.Short,
        queries.counted(f"max by (machine, gpu) ({_XID}) > 0", f"count({_UTIL})"),
        none="no GPUs",
        steps=rising(1, 8),
    ),
    graph(
        "At work, by node",
        "How much of the time something runs on a node's GPUs, on average. Nodes at 0 with jobs "
        "on them are in the table of GPUs given and idle.",
        units.PercentUnit,
        Query(of_nodes(queries.gpu_used(ANY)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "Memory, by node",
        "Share of the GPUs' memory in use. Memory in use on a node without jobs is a process left "
        "over: the check `gpu-busy` drains it.",
        units.PercentUnit,
        Query(of_nodes(queries.gpu_memory_used(ANY)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    table(
        "Nodes with GPUs given and idle",
        "Nodes on which jobs have GPUs that did nothing for half an hour. Ask the jobs' owners: "
        "such GPUs are kept from those who wait.",
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
        "Of each node's GPUs the Xid with the highest number, and rows of memory that were "
        "replaced or could not be. NVIDIA's catalogue of Xids says what each means; the node's "
        "checks drain what counts.",
        ["node"],
        Column(of_nodes(f"max by (machine) ({_XID})"), "Xid"),
        Column(of_nodes(_rows("ROW_REMAP_FAILURE")), "Rows that failed", steps=rising(1, 1)),
        Column(of_nodes(_rows("UNCORRECTABLE_REMAPPED_ROWS")), "Rows replaced"),
        none="no GPUs",
        sort="Xid",
    ),
    graph(
        "Temperature, by node",
        "The hottest GPU of each node. A node that is hotter than the others at the same work has "
        "a fault of cooling.",
        units.Celsius,
        Query(of_nodes(_TEMPERATURE), "{{node}}"),
        none="no GPUs",
    ),
    graph(
        "Power, by node",
        "What the GPUs of each node draw. One that is below the others at the same work is "
        "limited: the checks `gpu-power` and `gpu-throttle` say by what.",
        units.Watt,
        Query(of_nodes(_POWER), "{{node}}"),
        none="no GPUs",
    ),
    graph(
        "Clock, by node",
        "The slowest GPU's clock, of those at work. One that is slower than the others holds up "
        "every job that has it: heat, power or a fault.",
        units.Hertz,
        Query(
            of_nodes(
                f"1e6 * min by (machine) (DCGM_FI_DEV_SM_CLOCK{{{ANY}}}"
                f" and on (machine, gpu) {_UTIL} > 50)"
            ),
            "{{node}}",
        ),
        none="none at work",
    ),
    graph(
        "PCIe replays, by node",
        "How often data had to be sent again between a node's GPUs and its CPUs. More than a few "
        "in a minute is a bad slot, riser or cable.",
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
