"""PromQL that dashboards share. Each expression has one series per machine or node.

A *machine* is a Kubernetes node, and a *node* is a Slurm node. Metrics of machines come from
node-exporter (https://github.com/prometheus/node_exporter) and DCGM exporter
(https://github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv).
"""

BACK_AFTER = "5m"
"""Interval between two samples for the number of failures. A node that is healthy in one sample and
failed in the next adds one failure."""
_BACK_AFTER_SECONDS = 300

OUT_STATES = "down|drained|draining|fail|future|invalid|not_responding|powered_down"
"""States of nodes that accept no jobs, or do not exist yet."""
_BROKEN_STATES = "down|fail|invalid"
PLANNED_CAUSES = "cordoned|cost|foreign|leave|maintenance|roll"
"""Causes of drains that do not count as failures: planned work, and drains by operators or other
programs (`foreign`)."""

_NOT_CARDS = (
    "lo|(bond|br|cali|cilium|cni|docker|dummy|flannel|kube|lxc|nodelocal|team|tunl|veth|virbr|vxlan)"
    ".*|.*[.@:].*"
)
"""Virtual network devices. Their traffic stays in the machine, or is also counted on a card."""
_NOT_DISKS = "(dm-|loop|md|ram|sr|zram).*"
"""Block devices that are not disks: they consist of other devices, or of memory."""
_FILE_SYSTEMS = 'fstype!~"(devtmpfs|erofs|fuse.*|iso9660|nfs.*|overlay|ramfs|squashfs|tmpfs)"'
"""File systems on a machine's own disks."""

# --- Machines ------------------------------------------------------------------------------------

ANY = 'machine!=""'
"""Label matcher for all machines. It excludes metrics of the same name from other exporters: their
series have no label `machine`."""
CHOSEN = 'machine=~"$machine"'
"""Label matcher for the machines that a dashboard shows. The series of all machines would be too
many for one query."""

CPU_USED = (
    "1 - avg by (machine)"
    f' (rate(node_cpu_seconds_total{{mode="idle", {CHOSEN}}}[$__rate_interval]))'
)
"""Used share of all CPUs of a machine, 0 to 1."""
MEMORY_USED = (
    f"1 - max by (machine) (node_memory_MemAvailable_bytes{{{CHOSEN}}})"
    f" / max by (machine) (node_memory_MemTotal_bytes{{{CHOSEN}}})"
)
"""Used share of the memory of a machine, 0 to 1."""


def network(direction: str) -> str:
    """Return PromQL for bytes per second on Ethernet. `direction` is `receive` or `transmit`."""
    devices = f'device!~"{_NOT_CARDS}"'
    return _by_device(f"node_network_{direction}_bytes_total{{{devices}, {CHOSEN}}}", "device")


def infiniband(direction: str) -> str:
    """Return PromQL for bytes per second on InfiniBand.

    `direction` is `received` or `transmitted`.
    """
    counter = f"node_infiniband_port_data_{direction}_bytes_total{{{CHOSEN}}}"
    return _by_device(counter, "device, port")


def disk(direction: str) -> str:
    """Return PromQL for the bytes per second of all disks. `direction` is `read` or `written`."""
    devices = f'device!~"{_NOT_DISKS}"'
    return _by_device(f"node_disk_{direction}_bytes_total{{{devices}, {CHOSEN}}}", "device")


def _by_device(counter: str, labels: str) -> str:
    # Add each device only once, even if two exporters report it.
    return f"sum by (machine) (max by (machine, {labels}) (rate({counter}[$__rate_interval])))"


def disk_full(of: str, by: str = "machine") -> str:
    """Return PromQL for the used share of the fullest file system, 0 to 1."""
    return (
        f"max by ({by}) (1 - node_filesystem_avail_bytes{{{of}, {_FILE_SYSTEMS}}}"
        f" / (node_filesystem_size_bytes{{{of}, {_FILE_SYSTEMS}}} > 0))"
    )


def disk_busy(of: str) -> str:
    """Return PromQL for the share of time that the busiest disk was busy, 0 to 1."""
    counter = f'node_disk_io_time_seconds_total{{device!~"{_NOT_DISKS}", {of}}}'
    return f"max by (machine) (rate({counter}[$__rate_interval]))"


def gpu_used(of: str) -> str:
    """Return PromQL for the share of time that the GPUs were busy, 0 to 1."""
    return f"avg by (machine) (DCGM_FI_DEV_GPU_UTIL{{{of}}}) / 100"


def gpu_memory_used(of: str) -> str:
    """Return PromQL for the used share of the GPUs' memory, 0 to 1."""
    used, free = (of_gpus(f"DCGM_FI_DEV_FB_{part}{{{of}}}") for part in ("USED", "FREE"))
    return f"{used} / ({used} + {free} > 0)"


def of_gpus(metric: str) -> str:
    """Return PromQL for the sum of a metric over a machine's GPUs, or over their slices."""
    return f"sum by (machine) (max by (machine, gpu, GPU_I_ID) ({metric}))"


# --- Nodes ---------------------------------------------------------------------------------------


def of_nodes(machines: str, which: str = "slurm_node_info") -> str:
    """Convert values of machines to values of the nodes on them. `which` selects the nodes.

    A machine may have several nodes, so nodes are the "many" side of this many-to-one match. A node
    that moves may be on two machines for a moment. The result is then the higher of the two values.
    """
    return (
        f"max by (node) (max by (node, machine) ({which})"
        f" * on (machine) group_left () ({machines}))"
    )


NODE = 'slurm_node_info{node="$node"}'
"""Selects the node that the dashboard shows. Pass it to `of_nodes` as `which`."""


def of_one_node(metric: str, labels: str) -> str:
    """Return PromQL for a metric of the machine that runs `$node`, grouped by `labels`."""
    return f"max by ({labels}) ({metric} and on (machine) {NODE})"


JOB = 'slurm_job_node{job_id="$job_id"}'
NODES_OF_JOB = f"slurm_node_info and on (node) {JOB}"
"""Selects the nodes of a job while the job runs. Pass it to `of_nodes` as `which`."""


def _ever(series: str) -> str:
    return f"last_over_time({series}[$__range])"


MACHINES_OF_NODE = f"query_result(max by (machine) ({_ever(NODE)}))"
MACHINES_OF_JOB = (
    f"query_result(max by (machine) ({_ever('slurm_node_info')} and on (node) {_ever(JOB)}))"
)
"""Machines of the node or job in the shown time, for the variable `machine`."""

# --- The cluster ---------------------------------------------------------------------------------


def counted(series: str, known: str) -> str:
    """Return PromQL for the number of series.

    If there are no series, the result is 0 only if `known` has a value. Otherwise there is no
    result, so that missing data does not look like 0.
    """
    return f"count({series}) or 0 * {known}"


def _failed(ago: str = "") -> str:
    """Return PromQL for faulty nodes: broken nodes, and nodes with an unplanned drain."""
    return (
        f'(max by (node) (slurm_node_state{{state=~"{_BROKEN_STATES}"}}{ago})'
        f' unless on (node) slurm_node_drained_seconds{{cause=~"{PLANNED_CAUSES}"}}{ago}'
        f' or max by (node) (slurm_node_drained_seconds{{cause!~"{PLANNED_CAUSES}"}}{ago}))'
    )


_AGO = f" offset {BACK_AFTER}"
FAILURES = (
    f"sum(count_over_time(({_failed()} unless on (node) {_failed(_AGO)}"
    # After a gap in the data, do not treat a broken node as newly broken.
    f" and on () sum(slurm_nodes{_AGO}))[$__range:{BACK_AFTER}]))"
)
"""Number of node failures in the shown time. No series if there were no failures."""
MTBF = (
    f'{_BACK_AFTER_SECONDS} * sum_over_time(sum(slurm_nodes{{state!~"{OUT_STATES}"}})'
    f"[$__range:{BACK_AFTER}]) / {FAILURES}"
)
"""Seconds that all nodes were in service, divided by the number of failures. Without failures,
there is no series."""


def limit(selector: str = "") -> str:
    """Return PromQL for the limit of a long check: the lowest or the highest good value."""
    return f"slurmstack_longcheck_minimum{selector} or slurmstack_longcheck_maximum{selector}"
