"""Health of the cluster: nodes out of service, the causes, and the repairs."""

from grafana_foundation_sdk.models import units

from monitoring.dashboards import queries
from monitoring.dashboards.parts import (
    PER_MINUTE,
    YES_NO,
    Column,
    Query,
    board,
    falling,
    graph,
    rising,
    stat,
    table,
)
from monitoring.dashboards.states import NODE_COLORS

DASHBOARD = board(
    "slurmstack-health",
    "Cluster health",
    "Health of the cluster: nodes out of service, the reasons, and the repairs.",
    stat(
        "In service",
        "Share of the configured nodes that accept jobs. Below 100 %, see *Nodes out of service* "
        "for the nodes and reasons.",
        units.PercentUnit,
        "max(slurmstack_nodes_in_service) / (max(slurmstack_nodes_wanted) > 0)",
        none="no nodes",
        steps=falling(0.9, 1),
    ),
    stat(
        "Out of service",
        "Nodes that should accept jobs but do not. The table *Nodes out of service* lists them.",
        units.Short,
        "max(slurmstack_nodes_wanted) - max(slurmstack_nodes_in_service)",
        steps=rising(1, 5),
    ),
    stat(
        "Operator needed",
        "Nodes that the reconciler cannot repair. Look for `person` in the table *Nodes out of "
        "service*, and inspect these nodes.",
        units.Short,
        queries.counted(
            'max by (node) (slurmstack_node_finding{step="person"})', "max(slurmstack_nodes_wanted)"
        ),
        steps=rising(1, 1),
    ),
    stat(
        "Slurm answers",
        "Whether the exporter's last read of Slurm was complete. If not, data about Slurm is "
        "missing below: check slurmctld, then the exporter's log.",
        units.NoUnit,
        "min(slurm_up)",
        none="no exporter",
        words=YES_NO,
    ),
    stat(
        "Last pass of the reconciler",
        "Time since the reconciler last checked all nodes (a pass). If it is much longer than a "
        "minute, the reconciler neither drains nor repairs nodes: its log shows which server does "
        "not answer.",
        units.Seconds,
        "time() - max(slurmstack_reconciler_last_pass_timestamp_seconds)",
        none="never",
        steps=rising(180, 600),
    ),
    stat(
        "Mean time between failures",
        "Time that all nodes together were in service, divided by the number of failures in the "
        "shown time. "
        f"Planned drains, and faults shorter than {queries.BACK_AFTER}, are excluded. If the value "
        "falls, *Drained, by cause* shows the faults.",
        units.Seconds,
        queries.MTBF,
        none="no failure",
    ),
    graph(
        "Nodes by state",
        "Number of nodes in each state. Nodes in red or orange states accept no jobs. If many "
        "nodes are idle while jobs wait, see the dashboard *Jobs and queue*.",
        units.Short,
        Query("sum by (state) (slurm_nodes) > 0", "{{state}}"),
        none="no nodes",
        stacked=True,
        colors=NODE_COLORS,
    ),
    graph(
        "Drained, by cause",
        "Drained nodes, by the check or event that caused the drain. `foreign` means that a person "
        "or another program drained the node. If many nodes have the same cause at once, the nodes "
        "are rarely at fault.",
        units.Short,
        Query("sum by (cause) (slurm_nodes_drained) > 0", "{{cause}}"),
        none="none drained",
        stacked=True,
    ),
    table(
        "Nodes out of service",
        "Faults (findings) of nodes that accept no jobs, and the last repair step against each. "
        "`person`: an operator must inspect the node. `none`: the reconciler has taken no step "
        "yet, or leaves the node to the person or program that drained it.",
        ["node", "finding", "step"],
        Column("max by (node, finding, step) (slurmstack_node_finding)"),
    ),
    table(
        "Drained nodes",
        "Nodes that accept no new jobs, the cause, and the time since the drain. If a "
        "`foreign` drain is older than a day, ask who drained the node: the reconciler does not "
        "lift such a drain.",
        ["node", "cause"],
        Column(
            "max by (node, cause) (slurm_node_drained_seconds)",
            "Since",
            units.Seconds,
            rising(86400, 7 * 86400),
        ),
        sort="Since",
    ),
    graph(
        "Findings",
        "Number of nodes with each finding of the reconciler. If a number rises and does not fall, "
        "the repair steps do not fix the fault: see *Repair ladder*.",
        units.Short,
        Query("max by (finding) (slurmstack_findings) > 0", "{{finding}}"),
        none="nothing found",
    ),
    graph(
        "Repair ladder",
        "Repair steps since the start of the reconciler. A line rises with each repair. Many "
        "restarts, reboots or replacements in a short time have a common cause: see *Findings*.",
        units.Short,
        Query("sum by (step) (slurmstack_steps_total)", "{{step}}"),
        none="no step taken",
        stepped=True,
    ),
    table(
        "Nodes repaired most often",
        "Restarts, reboots and replacements of each node since the start of the reconciler. If a "
        "node has far more than others, repairs do not fix its fault: drain it, and inspect its "
        "hardware.",
        ["node"],
        Column(
            'topk(20, sum by (node) (slurmstack_steps_total{step=~"restart|reboot|replace"}))',
            "Steps",
        ),
        sort="Steps",
    ),
    graph(
        "Unchecked and silent nodes",
        "*not checked*: nodes in service without recent check results; their faults stay "
        "undetected. *without munged*: nodes on which munged does not run, or restarted recently. "
        "*lost per hour*: how often slurmctld lost contact with a node; the cause may be a network "
        "fault.",
        units.Short,
        Query("max(slurmstack_nodes_unchecked)", "not checked"),
        Query("max(slurmstack_nodes_without_munged)", "without munged"),
        Query(
            "max by (node) (increase(slurmstack_node_silences_total[1h])) > 0",
            "{{node}} lost per hour",
        ),
        none="no reconciler",
    ),
    graph(
        "Passes of the reconciler",
        "Passes of the reconciler over all nodes, by default one per minute. A failed pass had "
        "incomplete data, and changed nothing: the reconciler's log shows which server did not "
        "answer.",
        PER_MINUTE,
        Query(
            "60 * sum by (result) (rate(slurmstack_reconciler_passes_total[$__rate_interval]))",
            "{{result}}",
        ),
        none="no reconciler",
    ),
    since="now-24h",
)
