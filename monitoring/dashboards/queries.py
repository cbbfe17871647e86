"""PromQL that dashboards share. Each is of one series a machine, or a node, whatever else there is.

A *machine* is a node of Kubernetes, a *node* one of Slurm's. Metrics of machines are node
exporter's (https://github.com/prometheus/node_exporter) and DCGM exporter's
(https://github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv).
"""

BACK_AFTER = "5m"
"""How far apart looks at nodes are that count failures: a node that is well in between has failed
once more."""
_BACK_AFTER_SECONDS = 300

OUT_STATES = "down|drained|draining|fail|future|invalid|not_responding|powered_down"
"""States of nodes that take no jobs, or are not there."""
_BROKEN_STATES = "down|fail|invalid"
PLANNED_CAUSES = "cordoned|foreign|leave|maintenance"
"""Causes of drains that are somebody's wish."""

_NOT_CARDS = (
    "lo|(bond|br|cali|cilium|cni|docker|dummy|flannel|kube|lxc|nodelocal|team|tunl|veth|virbr|vxlan)"
    ".*|.*[.@:].*"
)
"""Network devices of software, whose traffic is no machine's or a card's as well."""
_NOT_DISKS = "(dm-|loop|md|ram|sr|zram).*"
"""Block devices that are made of others, or of memory."""
_FILE_SYSTEMS = 'fstype!~"(devtmpfs|erofs|fuse.*|iso9660|nfs.*|overlay|ramfs|squashfs|tmpfs)"'
"""File systems on a machine's own disks."""

# --- Of machines ---------------------------------------------------------------------------------

ANY = 'machine!=""'
"""Chooses all machines: other exporters of the same metrics may be there, without that label."""
CHOSEN = 'machine=~"$machine"'
"""Chooses those that a dashboard is of: of all machines, some metrics are too many."""

CPU_USED = (
    "1 - avg by (machine)"
    f' (rate(node_cpu_seconds_total{{mode="idle", {CHOSEN}}}[$__rate_interval]))'
)
"""Share of all CPUs, 0 to 1."""
MEMORY_USED = (
    f"1 - max by (machine) (node_memory_MemAvailable_bytes{{{CHOSEN}}})"
    f" / max by (machine) (node_memory_MemTotal_bytes{{{CHOSEN}}})"
)
"""Share of the memory, 0 to 1."""


def network(direction: str) -> str:
    """Bytes a second on Ethernet; `direction` is `receive` or `transmit`."""
    devices = f'device!~"{_NOT_CARDS}"'
    return _by_device(f"node_network_{direction}_bytes_total{{{devices}, {CHOSEN}}}", "device")


def infiniband(direction: str) -> str:
    """Bytes a second on InfiniBand; `direction` is `received` or `transmitted`."""
    counter = f"node_infiniband_port_data_{direction}_bytes_total{{{CHOSEN}}}"
    return _by_device(counter, "device, port")


def disk(direction: str) -> str:
    """Bytes a second of all disks; `direction` is `read` or `written`."""
    devices = f'device!~"{_NOT_DISKS}"'
    return _by_device(f"node_disk_{direction}_bytes_total{{{devices}, {CHOSEN}}}", "device")


def _by_device(counter: str, labels: str) -> str:
    # What two exporters tell of is counted once.
    return f"sum by (machine) (max by (machine, {labels}) (rate({counter}[$__rate_interval])))"


def disk_full(of: str, by: str = "machine") -> str:
    """Share of the fullest file system, 0 to 1."""
    return (
        f"max by ({by}) (1 - node_filesystem_avail_bytes{{{of}, {_FILE_SYSTEMS}}}"
        f" / (node_filesystem_size_bytes{{{of}, {_FILE_SYSTEMS}}} > 0))"
    )


def disk_busy(of: str) -> str:
    """Share of the time that the busiest disk had something to do, 0 to 1."""
    counter = f'node_disk_io_time_seconds_total{{device!~"{_NOT_DISKS}", {of}}}'
    return f"max by (machine) (rate({counter}[$__rate_interval]))"


def gpu_used(of: str) -> str:
    """Share of the time that something ran on the GPUs, 0 to 1."""
    return f"avg by (machine) (DCGM_FI_DEV_GPU_UTIL{{{of}}}) / 100"


def gpu_memory_used(of: str) -> str:
    """Share of the GPUs' memory, 0 to 1."""
    used, free = (of_gpus(f"DCGM_FI_DEV_FB_{part}{{{of}}}") for part in ("USED", "FREE"))
    return f"{used} / ({used} + {free} > 0)"


def of_gpus(metric: str) -> str:
    """The sum over a machine's GPUs, or over their slices."""
    return f"sum by (machine) (max by (machine, gpu, GPU_I_ID) ({metric}))"


# --- Of nodes ------------------------------------------------------------------------------------


def of_nodes(machines: str, which: str = "slurm_node_info") -> str:
    """What is so of machines, as of the nodes that are on them; `which` chooses the nodes.

    A machine may have several nodes, so nodes are the many of this many-to-one match; and for a
    moment a node that moves may be on two machines.
    """
    return (
        f"max by (node) (max by (node, machine) ({which})"
        f" * on (machine) group_left () ({machines}))"
    )


NODE = 'slurm_node_info{node="$node"}'
"""For `of_nodes`: one node."""


def of_one_node(metric: str, labels: str) -> str:
    """Of a metric, the series of the machine that `$node` is on, by some of their labels."""
    return f"max by ({labels}) ({metric} and on (machine) {NODE})"


JOB = 'slurm_job_node{job_id="$job_id"}'
NODES_OF_JOB = f"slurm_node_info and on (node) {JOB}"
"""For `of_nodes`: the nodes of a job while it runs."""


def _ever(series: str) -> str:
    return f"last_over_time({series}[$__range])"


MACHINES_OF_NODE = f"query_result(max by (machine) ({_ever(NODE)}))"
MACHINES_OF_JOB = (
    f"query_result(max by (machine) ({_ever('slurm_node_info')} and on (node) {_ever(JOB)}))"
)
"""For the variable `machine`: those that it is or was on in the time that is shown."""

# --- Of the cluster ------------------------------------------------------------------------------


def counted(series: str, known: str) -> str:
    """How many series there are; 0 only where `known`, of one series, shows that it is known."""
    return f"count({series}) or 0 * {known}"


def _failed(ago: str = "") -> str:
    """Nodes that are out for a fault: broken, or drained for anything that nobody wished."""
    return (
        f'(max by (node) (slurm_node_state{{state=~"{_BROKEN_STATES}"}}{ago})'
        f' unless on (node) slurm_node_drained_seconds{{cause=~"{PLANNED_CAUSES}"}}{ago}'
        f' or max by (node) (slurm_node_drained_seconds{{cause!~"{PLANNED_CAUSES}"}}{ago}))'
    )


_AGO = f" offset {BACK_AFTER}"
FAILURES = (
    f"sum(count_over_time(({_failed()} unless on (node) {_failed(_AGO)}"
    # After a time of which nothing is known, what is broken is not newly so.
    f" and on () sum(slurm_nodes{_AGO}))[$__range:{BACK_AFTER}]))"
)
"""How often a node failed in the time that is shown; no series where none did."""
MTBF = (
    f'{_BACK_AFTER_SECONDS} * sum_over_time(sum(slurm_nodes{{state!~"{OUT_STATES}"}})'
    f"[$__range:{BACK_AFTER}]) / {FAILURES}"
)
"""Seconds that nodes were in service, by the failures; no series where there was none."""


def limit(selector: str = "") -> str:
    """A long check's limit, which is the least or the most that is good."""
    return f"slurmstack_longcheck_minimum{selector} or slurmstack_longcheck_maximum{selector}"
