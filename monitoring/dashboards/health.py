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
    "Is the cluster well, what is out of it and why, and what is done about that.",
    stat(
        "In service",
        "Share of the nodes that settings want which take jobs. Below 100 %, the table of nodes "
        "that are out says which ones, and why.",
        units.PercentUnit,
        "max(slurmstack_nodes_in_service) / (max(slurmstack_nodes_wanted) > 0)",
        none="no nodes",
        steps=falling(0.9, 1),
    ),
    stat(
        "Nodes out",
        "Nodes that should take jobs and do not. Each has a line in the table of nodes that are "
        "out.",
        units.Short,
        "max(slurmstack_nodes_wanted) - max(slurmstack_nodes_in_service)",
        steps=rising(1, 5),
    ),
    stat(
        "A person is needed",
        "Nodes for which all steps of repair were taken in vain. Look at each one's findings: the "
        "reconciler does nothing more until the cause is gone.",
        units.Short,
        queries.counted(
            'max by (node) (slurmstack_node_finding{step="person"})', "max(slurmstack_nodes_wanted)"
        ),
        steps=rising(1, 1),
    ),
    stat(
        "Slurm answers",
        "Whether the exporter's last look at Slurm was told everything. If not, nothing below "
        "that is Slurm's is known: look at slurmctld, then at the exporter's log.",
        units.NoUnit,
        "min(slurm_up)",
        none="no exporter",
        words=YES_NO,
    ),
    stat(
        "Last look at nodes",
        "How long ago the reconciler could ask for everything; it looks each minute. When it is "
        "older, nothing is drained or mended: its log says what does not answer.",
        units.Seconds,
        "time() - max(slurmstack_reconciler_last_pass_timestamp_seconds)",
        none="never",
        steps=rising(180, 600),
    ),
    stat(
        "Mean time between failures",
        "Time in service of all nodes, by how often one broke or was drained for a fault, in the "
        "time that is shown. Drains that somebody wished do not count, nor do faults of less than "
        f"{queries.BACK_AFTER}. When it falls, the drains by cause say what breaks.",
        units.Seconds,
        queries.MTBF,
        none="no failure",
    ),
    graph(
        "Nodes by state",
        "All nodes, each in one state. Red ones take no jobs; many that are idle while jobs wait "
        "are a matter for the dashboard of jobs.",
        units.Short,
        Query("sum by (state) (slurm_nodes) > 0", "{{state}}"),
        none="no nodes",
        stacked=True,
        colors=NODE_COLORS,
    ),
    graph(
        "Drained, by cause",
        "Nodes that were taken out of service, by the check or the fact that did it; `foreign` "
        "are drains by people and other programs. One cause on many nodes at once is seldom the "
        "nodes' own fault.",
        units.Short,
        Query("sum by (cause) (slurm_nodes_drained) > 0", "{{cause}}"),
        none="none drained",
        stacked=True,
    ),
    table(
        "Nodes that are out",
        "What the reconciler found on nodes that do not take jobs, and its last step of repair. "
        "`person` means that somebody has to look; at `none` it waits, or leaves the node to who "
        "drained it.",
        ["node", "finding", "step"],
        Column("max by (node, finding, step) (slurmstack_node_finding)"),
    ),
    table(
        "Drained nodes",
        "Nodes that take no new jobs, why, and for how long. After a day somebody should know of "
        "it: `foreign` drains are lifted by nobody but their owner.",
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
        "Nodes with each of the reconciler's findings. What rises and does not fall again is not "
        "mended by the ladder: see its steps.",
        units.Short,
        Query("max by (finding) (slurmstack_findings) > 0", "{{finding}}"),
        none="nothing found",
    ),
    graph(
        "Repair ladder",
        "Steps taken since the reconciler began; a line that rises is work being done. Many "
        "restarts, reboots or replacements in a short time point at one cause for all: see the "
        "findings.",
        units.Short,
        Query("sum by (step) (slurmstack_steps_total)", "{{step}}"),
        none="no step taken",
        stepped=True,
    ),
    table(
        "Nodes that were mended most",
        "Nodes by restarts, reboots and replacements since the reconciler began. Who leads by far "
        "has a fault that these steps do not reach: drain it, and have its hardware looked at.",
        ["node"],
        Column(
            'topk(20, sum by (node) (slurmstack_steps_total{step=~"restart|reboot|replace"}))',
            "Steps",
        ),
        sort="Steps",
    ),
    graph(
        "Nodes that say too little",
        "Nodes in service whose checks told nothing of late, nodes whose munged does not stay up, "
        "and how often in an hour slurmctld lost each node. The first take jobs that nobody looks "
        "after; the last come and go, as their network may.",
        units.Short,
        Query("max(slurmstack_nodes_unchecked)", "not checked"),
        Query("max(slurmstack_nodes_without_munged)", "without munged"),
        Query(
            "max by (node) (increase(slurmstack_node_silences_total[1h])) > 0",
            "{{node}} lost in an hour",
        ),
        none="no reconciler",
    ),
    graph(
        "Passes of the reconciler",
        "Looks at all nodes, one a minute. Those that failed were told nothing or only a part, "
        "and changed nothing: its log says what did not answer.",
        PER_MINUTE,
        Query(
            "60 * sum by (result) (rate(slurmstack_reconciler_passes_total[$__rate_interval]))",
            "{{result}}",
        ),
        none="no reconciler",
    ),
    since="now-24h",
)
