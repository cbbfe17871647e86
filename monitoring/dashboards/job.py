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
    "What a job's nodes do while it runs, and what they did. Choose the time when it ran; of "
    "nodes that it shares, other jobs are in the figures.",
    stat(
        "Nodes",
        "Nodes that the job has or had in the time that is shown. None: choose the time when it "
        "ran; or it was too small to be told of (`monitoring.exporter.jobs`).",
        units.Short,
        f"count(max by (node) ({_EVER}))",
        none="not seen",
    ),
    stat(
        "Was seen for",
        "From its first to its last moment on nodes, within the time that is shown. If it begins "
        "or ends with that time, choose a longer one.",
        units.Seconds,
        f"max(max_over_time({_SEEN})) - min(min_over_time({_SEEN}))",
        none="not seen",
    ),
    stat(
        "CPUs",
        "How busy its nodes' CPUs were on average. Low for a job of CPUs: it waits for files, for "
        "others, or has more CPUs than it has threads.",
        units.PercentUnit,
        _on_average(queries.CPU_USED),
    ),
    stat(
        "Memory, at most",
        "The most of a node's memory that was in use. Near 100 %, its steps are killed for want "
        "of memory; far below, it could ask for less and start sooner.",
        units.PercentUnit,
        _at_most(queries.MEMORY_USED),
    ),
    stat(
        "GPUs",
        "How much of the time something ran on its nodes' GPUs, on average. Low: the GPUs wait "
        "for data or for the slowest node; see which one below.",
        units.PercentUnit,
        _on_average(queries.gpu_used(queries.CHOSEN)),
        none="no GPUs",
        steps=falling(0.1, 0.5),
    ),
    stat(
        "GPU memory, at most",
        "The most of a node's GPU memory that was in use. Near 100 %, larger batches will fail; "
        "far below, there is room for them.",
        units.PercentUnit,
        _at_most(queries.gpu_memory_used(queries.CHOSEN)),
        none="no GPUs",
    ),
    graph(
        "CPUs, by node",
        "How busy each of its nodes' CPUs are. One that is unlike the others holds all of them "
        "up: look at that node.",
        units.PercentUnit,
        Query(_of_job(queries.CPU_USED), "{{node}}"),
        none="not seen",
        highest=1,
    ),
    graph(
        "Memory, by node",
        "Share of each node's memory that is in use. One that rises without an end is a leak, and "
        "ends at the limit with a step that is killed.",
        units.PercentUnit,
        Query(_of_job(queries.MEMORY_USED), "{{node}}"),
        none="not seen",
        highest=1,
    ),
    graph(
        "GPUs, by node",
        "How much of the time something runs on each node's GPUs, on average. All falling "
        "together wait for data or a checkpoint; one alone is a slow node.",
        units.PercentUnit,
        Query(_of_job(queries.gpu_used(queries.CHOSEN)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "GPU memory, by node",
        "Share of each node's GPU memory that is in use. Nodes that differ have different parts "
        "of the model, or a process left over from before.",
        units.PercentUnit,
        Query(_of_job(queries.gpu_memory_used(queries.CHOSEN)), "{{node}}"),
        none="no GPUs",
        highest=1,
    ),
    graph(
        "Received, by node",
        "What each node receives by Ethernet. For jobs whose nodes talk by it, and for files, its "
        "limit is the network card's; one node far above the others has what all the others want.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.network("receive")), "{{node}}"),
        none="not seen",
    ),
    graph(
        "Sent, by node",
        "What each node sends by Ethernet. One far above the others is where all read from, and "
        "may hold them up.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.network("transmit")), "{{node}}"),
        none="not seen",
    ),
    graph(
        "InfiniBand received, by node",
        "What each node receives by InfiniBand. Nothing, in a job of several nodes that should "
        "use it: NCCL or MPI has fallen back to Ethernet; their logs say why.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.infiniband("received")), "{{node}}"),
        none="no InfiniBand",
    ),
    graph(
        "Disks, by node",
        "What each node reads from and writes to its own disks. The jail is elsewhere, and is "
        "among what is received and sent.",
        units.BytesPerSecondSI,
        Query(_of_job(queries.disk("read")), "{{node}} read"),
        Query(_of_job(queries.disk("written")), "{{node}} written"),
        none="not seen",
    ),
    table(
        "Nodes of the job",
        "Where it runs or ran, and for whom; a node's name leads to all that is known of it. User "
        "and account are `other` where they were not among the largest.",
        ["node", "partition", "user", "account"],
        Column(f"max by (node, partition, user, account) ({_EVER})"),
        none="not seen",
        width=24,
    ),
    variables=[
        variable(
            "job_id", "Job", "label_values(slurm_job_node, job_id)", VariableSort.NUMERICAL_DESC
        ),
        machines(queries.MACHINES_OF_JOB),
    ],
)
