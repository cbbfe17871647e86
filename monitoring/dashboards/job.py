"""One job: what its nodes do while it runs, and what they did."""

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import VariableSort

from monitoring.dashboards import queries
from monitoring.dashboards.parts import (
    JOB,
    Column,
    Query,
    board,
    falling,
    graph,
    machines,
    stat,
    table,
    variable,
)

_EVER = f"last_over_time({queries.JOB}[$__range])"
"""The job's nodes at any time that is shown."""
_SEEN = f"timestamp({queries.JOB})[$__range:1m]"


def _of_job(of_machines: str) -> str:
    return queries.of_nodes(of_machines, queries.NODES_OF_JOB)


def _on_average(of_machines: str) -> str:
    """Average over its nodes and over the shown time, while it ran."""
    return f"avg(avg_over_time(({_of_job(of_machines)})[$__range:$__interval]))"


def _at_most(of_machines: str) -> str:
    return f"max(max_over_time(({_of_job(of_machines)})[$__range:$__interval]))"


DASHBOARD = board(
    JOB,
    "One job",
    "Use of a job's nodes while it runs or ran. Choose the time when it ran. On shared nodes, the "
    "figures include other jobs.",
    stat(
        "Nodes",
        "Nodes of the job in the shown time. If there are none, choose the time when it ran; jobs "
        "that are too small are not reported (`monitoring.exporter.jobs`).",
        units.Short,
        f"count(max by (node) ({_EVER}))",
        none="no data",
    ),
    stat(
        "Observed runtime",
        "Time between its first and last sample on nodes, within the shown time. If the job starts "
        "before or ends after the shown time, choose a longer one.",
        units.Seconds,
        f"max(max_over_time({_SEEN})) - min(min_over_time({_SEEN}))",
        none="no data",
    ),
    stat(
        "CPUs",
        "Mean utilisation of its nodes' CPUs. If it is low for a CPU job, the job waits for files "
        "or other processes, or has more CPUs than threads.",
        units.PercentUnit,
        _on_average(queries.CPU_USED),
    ),
    stat(
        "Peak memory",
        "Highest memory use of one of its nodes. Near 100 %, its steps are killed; far below, the "
        "job could request less memory and start sooner.",
        units.PercentUnit,
        _at_most(queries.MEMORY_USED),
    ),
    stat(
        "GPUs",
        "Mean utilisation of its nodes' GPUs. If it is low, the GPUs wait for data or for the "
        "slowest node: see *GPUs, by node*.",
        units.PercentUnit,
        _on_average(queries.gpu_used(queries.CHOSEN)),
        none="no GPUs",
        steps=falling(0.1, 0.5),
    ),
    stat(
        "Peak GPU memory",
        "Highest GPU memory use of one of its nodes. Near 100 %, larger batches will fail; far "
        "below, there is room for them.",
        units.PercentUnit,
        _at_most(queries.gpu_memory_used(queries.CHOSEN)),
        none="no GPUs",
    ),
    graph(
        "CPUs, by node",
        "CPU utilisation of each node. A node that differs from the others slows all of them down: "
        "inspect it.",
        units.PercentUnit,
        Query(_of_job(queries.CPU_USED), "{{node}}"),
        none="no data",
        highest=1,
    ),
    graph(
        "Memory, by node",
        "Memory use of each node. A rise without end is a leak: at the limit, the step is killed.",
        units.PercentUnit,
        Query(_of_job(queries.MEMORY_USED), "{{node}}"),
        none="no data",
        highest=1,
    ),
    graph(
        "GPUs, by node",
        "Utilisation of each node's GPUs, on average. If all fall together, they wait for data or "
        "a checkpoint; if one falls alone, the node is slow.",
        units.PercentUnit,
        Query(_of_job(queries.gpu_used(queries.CHOSEN)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "GPU memory, by node",
        "GPU memory use of each node. Nodes that differ hold different parts of the model, or a "
        "leftover process.",
        units.PercentUnit,
        Query(_of_job(queries.gpu_memory_used(queries.CHOSEN)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "Received, by node",
        "Data that each node receives by Ethernet. The network card limits communication and file "
        "access by Ethernet; a node far above the others serves all others.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.network("receive")), "{{node}}"),
        none="no data",
    ),
    graph(
        "Sent, by node",
        "Data that each node sends by Ethernet. A node far above the others serves all others, and "
        "may slow them down.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.network("transmit")), "{{node}}"),
        none="no data",
    ),
    graph(
        "InfiniBand received, by node",
        "Data that each node receives by InfiniBand. If a job of several nodes that should use it "
        "receives none, NCCL or MPI has fallen back to Ethernet: their logs show the reason.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.infiniband("received")), "{{node}}"),
        none="no InfiniBand",
    ),
    graph(
        "Disks, by node",
        "Reads and writes of each node's local disks. Access to the jail is not included: it is "
        "part of the network traffic.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.disk("read")), "{{node}} read"),
        Query(_of_job(queries.disk("written")), "{{node}} written"),
        none="no data",
    ),
    table(
        "Nodes of the job",
        "Nodes, user and account of the job; a node's name links to its dashboard. Smaller users "
        "and accounts are shown as `other`.",
        ["node", "partition", "user", "account"],
        Column(f"max by (node, partition, user, account) ({_EVER})"),
        none="no data",
        width=24,
    ),
    variables=[
        variable(
            "job_id", "Job", "label_values(slurm_job_node, job_id)", VariableSort.NUMERICAL_DESC
        ),
        machines(queries.MACHINES_OF_JOB),
    ],
)
