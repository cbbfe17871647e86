"""Dashboard of one job: how busy the CPUs, memory, GPUs, network and disks of its nodes are."""

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
"""All nodes of the job in the shown time, even if it ended before the end of this time."""
_SEEN = f"timestamp({queries.JOB})[$__range:1m]"


def _of_job(of_machines: str) -> str:
    return queries.of_nodes(of_machines, queries.NODES_OF_JOB)


def _on_average(of_machines: str) -> str:
    """Return PromQL for the average over the job's nodes, while the job ran in the shown time."""
    return f"avg(avg_over_time(({_of_job(of_machines)})[$__range:$__interval]))"


def _at_most(of_machines: str) -> str:
    return f"max(max_over_time(({_of_job(of_machines)})[$__range:$__interval]))"


DASHBOARD = board(
    JOB,
    "One job",
    "How busy the nodes of a job are while the job runs. If the job has ended, choose the time "
    "when it ran. On shared nodes, the figures include other jobs.",
    stat(
        "Nodes",
        "Nodes of the job in the shown time. If there is no number, choose the time when the job"
        " ran. A job with few CPUs may have no data: the exporter reports the jobs with the most"
        " CPUs first, up to `monitoring.exporter.jobs` pairs of job and node.",
        units.Short,
        f"count(max by (node) ({_EVER}))",
        none="no data",
    ),
    stat(
        "Observed runtime",
        "Time between the first and the last sample of the job in the shown time. If the job "
        "started earlier or ended later, choose a longer time.",
        units.Seconds,
        f"max(max_over_time({_SEEN})) - min(min_over_time({_SEEN}))",
        none="no data",
    ),
    stat(
        "CPUs",
        "Mean utilisation of the CPUs of the job's nodes. If it is low although the job"
        " computes on CPUs, the job waits for files or other processes, or has more CPUs"
        " than threads.",
        units.PercentUnit,
        _on_average(queries.CPU_USED),
    ),
    stat(
        "Peak memory",
        "Highest memory use of one of the job's nodes. Near 100 %, Slurm kills the job's"
        " steps. If the value is far below 100 %, users should request less memory: the"
        " job may then start sooner.",
        units.PercentUnit,
        _at_most(queries.MEMORY_USED),
    ),
    stat(
        "GPUs",
        "Mean utilisation of the GPUs of the job's nodes. If it is low, the GPUs wait for data or "
        "for the slowest node: see *GPUs, by node*.",
        units.PercentUnit,
        _on_average(queries.gpu_used(queries.CHOSEN)),
        none="no GPUs",
        steps=falling(0.1, 0.5),
    ),
    stat(
        "Peak GPU memory",
        "Highest GPU memory use of one of the job's nodes. If the value is near 100 %,"
        " the GPUs have no memory for larger batches. If it is far below, users can"
        " choose larger batches.",
        units.PercentUnit,
        _at_most(queries.gpu_memory_used(queries.CHOSEN)),
        none="no GPUs",
    ),
    graph(
        "CPUs, by node",
        "CPU utilisation of each node. If one node differs from the others, this node may slow all "
        "others down: inspect it.",
        units.PercentUnit,
        Query(_of_job(queries.CPU_USED), "{{node}}"),
        none="no data",
        highest=1,
    ),
    graph(
        "Memory, by node",
        "Memory use of each node. If it rises without end, the job has a memory leak:"
        " when the use reaches the job's limit, Slurm kills the step.",
        units.PercentUnit,
        Query(_of_job(queries.MEMORY_USED), "{{node}}"),
        none="no data",
        highest=1,
    ),
    graph(
        "GPUs, by node",
        "Mean utilisation of each node's GPUs. If the values of all nodes fall together, the nodes "
        "wait for data or a checkpoint. If the value of one node falls alone, this node is slow.",
        units.PercentUnit,
        Query(_of_job(queries.gpu_used(queries.CHOSEN)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "GPU memory, by node",
        "GPU memory use of each node. If the values differ, the nodes may hold different"
        " parts of the model, or a node has a leftover process from another job.",
        units.PercentUnit,
        Query(_of_job(queries.gpu_memory_used(queries.CHOSEN)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "Received, by node",
        "Data that each node receives through Ethernet. The speed of the card is the limit for "
        "communication and file access. If one node receives far more than the others, all others "
        "send their data to this node.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.network("receive")), "{{node}}"),
        none="no data",
    ),
    graph(
        "Sent, by node",
        "Data that each node sends through Ethernet. A node far above the others sends data to all "
        "others, and may slow them down.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.network("transmit")), "{{node}}"),
        none="no data",
    ),
    graph(
        "InfiniBand received, by node",
        "Data that each node receives through InfiniBand. If a job of several nodes should use "
        "InfiniBand but receives no data, NCCL or MPI has fallen back to Ethernet: their logs show "
        "the reason.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.infiniband("received")), "{{node}}"),
        none="no InfiniBand",
    ),
    graph(
        "Disks, by node",
        "Reads and writes of each node's local disks. Access to the jail is not included: see the "
        "network traffic.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.disk("read")), "{{node}} read"),
        Query(_of_job(queries.disk("written")), "{{node}} written"),
        none="no data",
    ),
    table(
        "Nodes of the job",
        "Nodes, user and account of the job. A node's name links to its dashboard. Only the "
        "largest users and accounts have their own names; all others are shown as `other`.",
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
