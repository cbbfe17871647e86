"""Results of checks: values of long checks over time, and findings of all other checks."""

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Panel

from monitoring.dashboards import queries
from monitoring.dashboards.parts import GOOD_BAD, Column, Query, board, graph, rising, stat, table

_USUALLY = "14d"
"""A node's usual value is the median of its values in this period."""
_AGE = "(time() - max by (check, node) (slurmstack_longcheck_timestamp_seconds))"


def _values(check: str, title: str, unit: str, about: str) -> Builder[Panel]:
    """Return a graph of a check's values and the lowest limit.

    The graph shows each value until the next measurement.
    """
    of_check = f'{{check="{check}"}}'
    return graph(
        title,
        f"{about} The dashed line is the lowest limit of all nodes. The table *Long"
        " checks* shows the limit of each node.",
        unit,
        Query(f"max by (node) (slurmstack_longcheck_value{of_check})", "{{node}}"),
        Query(f"min({queries.limit(of_check)})", "limit"),
        none="not measured",
        stepped=True,
        dashed=["limit"],
    )


DASHBOARD = board(
    "slurmstack-checks",
    "Checks",
    "Results of checks: values of long checks over time, and findings of all other checks.",
    stat(
        "Bad measurements",
        "Newest measurements that are worse than the check's limit, or than the node's earlier "
        "values. Their nodes are drained: the table *Long checks* shows the values.",
        units.Short,
        queries.counted(
            "max by (check, node) (slurmstack_longcheck_good) == 0",
            "count(slurmstack_longcheck_good)",
        ),
        none="none measured",
        steps=rising(1, 3),
        width=6,
    ),
    stat(
        "Measured within a week",
        "Share of the newest values that are at most a week old. Each long check has one newest "
        "value per node. If the share is low, nodes are never free, or the checks do not run "
        "(`kubectl get cronjobs`).",
        units.PercentUnit,
        f"({queries.counted(f'{_AGE} < 7 * 86400', f'count({_AGE})')}) / count({_AGE})",
        none="none measured",
        width=6,
    ),
    stat(
        "Last measurement",
        "Time since the last measurement of any node. If this is longer than the time between two "
        "runs, the checks do not run, or no node is ever free.",
        units.Seconds,
        "time() - max(slurmstack_longcheck_timestamp_seconds)",
        none="none measured",
        steps=rising(2 * 86400, 7 * 86400),
        width=6,
    ),
    stat(
        "Out of service",
        "Nodes that are out of service for any reason. The table *Nodes with findings* shows the "
        "reasons.",
        units.Short,
        queries.counted("max by (node) (slurmstack_node_finding)", "max(slurmstack_nodes_wanted)"),
        none="no reconciler",
        steps=rising(1, 5),
        width=6,
    ),
    _values(
        "nccl",
        "NCCL, on a node",
        units.GigabytesPerSecond,
        "Bus bandwidth of an all-reduce over the GPUs of one node (check `nccl`). A node"
        " below the others has a faulty NVLink, or a slow GPU.",
    ),
    _values(
        "nccl-pair",
        "NCCL, between two nodes",
        units.GigabytesPerSecond,
        "Bus bandwidth of an all-reduce over the GPUs of two nodes (check `nccl-pair`)."
        " If one node is below the others, check its network cards, cables and switch"
        " port. If many nodes are low, check the switches.",
    ),
    _values(
        "gpu-memory",
        "GPU and host memory",
        units.GigabytesPerSecond,
        "Bandwidth of the slowest copy between a GPU's memory and the host's memory"
        " (check `gpu-memory`). A low value means that a PCIe link uses too few lanes, or"
        " a low speed.",
    ),
    _values(
        "cpu-memory",
        "CPU memory",
        units.MegabytesPerSecond,
        "Memory bandwidth of all CPUs together (check `cpu-memory`). If the bandwidth of"
        " a node falls, a memory module has failed, or the memory settings of the"
        " firmware have changed.",
    ),
    _values(
        "network",
        "Network, between two nodes",
        units.GigabitsPerSecond,
        "TCP bandwidth from one node to another (check `network`). If a node has half the"
        " bandwidth of others, a network card runs at a lower speed, or a bond has lost a"
        " link.",
    ),
    graph(
        "GPU faults",
        "Number of failed tests (check `dcgm`), and number of GPUs that computed wrong"
        " results (check `gpu-burn`). If a value is not 0, find the faulty GPU of the"
        " node and replace it.",
        units.Short,
        Query('max by (node) (slurmstack_longcheck_value{check="dcgm"})', "{{node}} dcgm"),
        Query('max by (node) (slurmstack_longcheck_value{check="gpu-burn"})', "{{node}} gpu-burn"),
        none="not measured",
        stepped=True,
    ),
    table(
        "Long checks",
        "The newest value of each node and check, and the check's limit. *Share of median* is the "
        f"value, divided by the median of the node's values in the last {_USUALLY}. If it falls "
        "slowly, the node is ageing. The check drains a bad node.",
        ["check", "node"],
        Column("max by (check, node) (slurmstack_longcheck_value)", "Value"),
        Column(f"max by (check, node) ({queries.limit()})", "Limit"),
        Column(
            "max by (check, node) (slurmstack_longcheck_value)"
            " / (max by (check, node)"
            f" (quantile_over_time(0.5, slurmstack_longcheck_value[{_USUALLY}:6h])) > 0)",
            "Share of median",
            units.PercentUnit,
        ),
        Column("min by (check, node) (slurmstack_longcheck_good)", "Verdict", words=GOOD_BAD),
        Column(
            "1000 * max by (check, node) (slurmstack_longcheck_timestamp_seconds)",
            "Measured",
            units.DateTimeFromNow,
        ),
        none="none measured",
        width=24,
    ),
    graph(
        "Findings",
        "Number of nodes with each finding, which is a fault that the reconciler or a quick check "
        "found. A finding on many nodes at once has a common cause: storage, network, or a new "
        "image.",
        units.Short,
        Query("max by (finding) (slurmstack_findings) > 0", "{{finding}}"),
        none="nothing found",
        stacked=True,
    ),
    table(
        "Nodes with findings",
        "Findings of each node, and the last repair step for each finding. docs/health.md "
        "describes how to make each check pass again.",
        ["node", "finding", "step"],
        Column("max by (node, finding, step) (slurmstack_node_finding)"),
    ),
    since="now-14d",
)
