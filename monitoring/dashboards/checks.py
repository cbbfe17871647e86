"""Results of checks: long checks' values over time, and findings of all others."""

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Panel

from monitoring.dashboards import queries
from monitoring.dashboards.parts import GOOD_BAD, Column, Query, board, graph, rising, stat, table

_USUALLY = "14d"
"""Period of the values whose median is a node's usual value."""
_AGE = "(time() - max by (check, node) (slurmstack_longcheck_timestamp_seconds))"


def _values(check: str, title: str, unit: str, about: str) -> Builder[Panel]:
    """Show a check's values, which hold until the next measurement, and the nodes' lowest limit."""
    of_check = f'{{check="{check}"}}'
    return graph(
        title,
        f"{about} Of nodes of several kinds, the limit drawn is the lowest; the table has each "
        "node's own.",
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
    "What checks say of nodes: long checks' values over time, and findings of all others.",
    stat(
        "Bad",
        "Measurements of nodes that were below what they should be, when last made. Such nodes "
        "are drained; the table says what was measured.",
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
        "Measured in a week",
        "Share of the nodes and checks with a value that is at most a week old. Low: nodes are "
        "never free, or the checks do not run (`kubectl get cronjobs`).",
        units.PercentUnit,
        f"({queries.counted(f'{_AGE} < 7 * 86400', f'count({_AGE})')}) / count({_AGE})",
        none="none measured",
        width=6,
    ),
    stat(
        "Last measurement",
        "How long ago any node was measured. Longer than the time between two runs: the checks do "
        "not run, or no node is ever free.",
        units.Seconds,
        "time() - max(slurmstack_longcheck_timestamp_seconds)",
        none="none measured",
        steps=rising(2 * 86400, 7 * 86400),
        width=6,
    ),
    stat(
        "Out of service",
        "Nodes that are out for whatever reason, and are not in service. The table of findings "
        "says why.",
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
        "Bus bandwidth of an all-reduce over a node's GPUs (`nccl`). One node below the others "
        "has a bad NVLink, or a GPU that is slow.",
    ),
    _values(
        "nccl-pair",
        "NCCL, between two nodes",
        units.GigabytesPerSecond,
        "Bus bandwidth of an all-reduce over two nodes (`nccl-pair`). One node below the others: "
        "its cards, cables or switch port; many at once: the fabric.",
    ),
    _values(
        "gpu-memory",
        "GPU and host memory",
        units.GigabytesPerSecond,
        "The slowest copy between a GPU's memory and the host's (`gpu-memory`). A low one is a "
        "PCIe link that came up narrow or slow.",
    ),
    _values(
        "cpu-memory",
        "CPU memory",
        units.MegabytesPerSecond,
        "Memory bandwidth of all CPUs together (`cpu-memory`). A node that lost a share of it "
        "lost a memory module, or changed its settings.",
    ),
    _values(
        "network",
        "Network, between two nodes",
        units.GigabitsPerSecond,
        "TCP from one node to another (`network`). Half of the others' is a card that came up "
        "slower, or a bond that lost a link.",
    ),
    graph(
        "Faults of GPUs",
        "Tests that failed (`dcgm`) and GPUs that computed wrong (`gpu-burn`). Anything but 0 is "
        "a GPU to be replaced.",
        units.Short,
        Query('max by (node) (slurmstack_longcheck_value{check="dcgm"})', "{{node}} dcgm"),
        Query('max by (node) (slurmstack_longcheck_value{check="gpu-burn"})', "{{node}} gpu-burn"),
        none="not measured",
        stepped=True,
    ),
    table(
        "Long checks",
        "The last value of each node and check, its limit, and what part it is of the node's "
        "median of "
        f"{_USUALLY}. One that falls slowly below its usual value ages; a bad one is drained.",
        ["check", "node"],
        Column("max by (check, node) (slurmstack_longcheck_value)", "Value"),
        Column(f"max by (check, node) ({queries.limit()})", "Limit"),
        Column(
            "max by (check, node) (slurmstack_longcheck_value)"
            " / (max by (check, node)"
            f" (quantile_over_time(0.5, slurmstack_longcheck_value[{_USUALLY}:6h])) > 0)",
            "Of its usual",
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
        "Nodes with each finding of the reconciler, those of the quick checks among them. One "
        "that appears on many nodes at once has one cause: storage, network, a new image.",
        units.Short,
        Query("max by (finding) (slurmstack_findings) > 0", "{{finding}}"),
        none="nothing found",
        stacked=True,
    ),
    table(
        "Nodes with findings",
        "What was found on which node, and the last step of repair. docs/health.md says of each "
        "check what makes it pass again.",
        ["node", "finding", "step"],
        Column("max by (node, finding, step) (slurmstack_node_finding)"),
    ),
    since="now-14d",
)
