"""What may fill up: the jail, which all share, and the machines' own disks."""

from grafana_foundation_sdk.models import units

from monitoring.dashboards import queries
from monitoring.dashboards.parts import Column, Query, board, graph, rising, stat, table
from monitoring.dashboards.queries import ANY, of_nodes

_SIZE, _FREE = "max(slurmstack_jail_size_bytes)", "min(slurmstack_jail_available_bytes)"
_FILES, _FILES_FREE = "max(slurmstack_jail_files)", "min(slurmstack_jail_files_free)"
_GROWTH = "min(deriv(slurmstack_jail_available_bytes[6h]))"

DASHBOARD = board(
    "slurmstack-storage",
    "Storage",
    "What may fill up: the jail, which all share, and the machines' own disks.",
    stat(
        "Jail in use",
        "Share of the shared root that is in use. At 100 % nobody can write, and jobs fail: find "
        "who has most (`du -xsh /home/*`), or give it more (`jail.size`).",
        units.PercentUnit,
        f"1 - {_FREE} / ({_SIZE} > 0)",
        none="not known",
        steps=rising(0.8, 0.9),
    ),
    stat(
        "Jail free",
        "What can still be written to the shared root. What a large job writes in a night should "
        "fit.",
        units.BytesIEC,
        _FREE,
        none="not known",
    ),
    stat(
        "Jail full in",
        "When the shared root is full, if it goes on as in the last six hours. Less than a day: "
        "somebody should look now.",
        units.Seconds,
        f"{_FREE} / -({_GROWTH} < 0)",
        none="does not grow",
        steps=((None, "red"), (86400, "orange"), (7 * 86400, "green")),
    ),
    stat(
        "Files of the jail",
        "Share of the files that the shared root may have. At 100 % nothing can be made, however "
        "much room is left: look for millions of small files.",
        units.PercentUnit,
        f"1 - {_FILES_FREE} / ({_FILES} > 0)",
        none="no limit",
        steps=rising(0.8, 0.9),
    ),
    stat(
        "Fullest disk",
        "The fullest file system of all machines' own. At 95 % the check `disk` drains the node.",
        units.PercentUnit,
        f"max({queries.disk_full(ANY)})",
        steps=rising(0.8, 0.95),
    ),
    stat(
        "Busiest disk",
        "How much of the time the busiest disk of all machines had something to do. Long at 100 "
        "%: what is on that machine waits for it.",
        units.PercentUnit,
        f"max({queries.disk_busy(ANY)})",
        steps=rising(0.9, 1),
    ),
    graph(
        "Size of the jail",
        "The shared root's size, and what is in use. A steep rise is one job or one user: see who "
        "writes.",
        units.BytesIEC,
        Query(_SIZE, "size"),
        Query(f"{_SIZE} - {_FREE}", "in use"),
        none="not known",
        dashed=["size"],
    ),
    graph(
        "Number of files in the jail",
        "Files that the shared root has, and may have. Rising without its size rising with it: "
        "many small files, such as environments of Python and data sets that were unpacked.",
        units.Short,
        Query(f"{_FILES} > 0", "limit"),
        Query(f"{_FILES} - {_FILES_FREE}", "in use"),
        none="not known",
        dashed=["limit"],
    ),
    graph(
        "Fullest disks",
        "The ten machines whose own disks are fullest. What fills them is mostly /tmp of jobs, "
        "images and logs.",
        units.PercentUnit,
        Query(f"topk(10, {queries.disk_full(ANY)})", "{{machine}}"),
        highest=1,
    ),
    graph(
        "Busiest disks",
        "The ten machines whose own disks are busiest. One that stays at 100 % is worn out, or "
        "has a job that should use memory or the jail.",
        units.PercentUnit,
        Query(f"topk(10, {queries.disk_busy(ANY)})", "{{machine}}"),
        highest=1,
    ),
    table(
        "Nodes by fullest disk",
        "Slurm nodes by the fullest file system of their machine; a name leads to all that is "
        "known of the node. Before one is drained, see what jobs left in its /tmp.",
        ["node"],
        Column(
            f"topk(50, {of_nodes(queries.disk_full(ANY))})",
            "Fullest",
            units.PercentUnit,
            rising(0.8, 0.95),
        ),
        sort="Fullest",
    ),
    table(
        "File systems",
        "The fullest file systems of all machines, by device. Those that no Slurm node is on "
        "belong to the controller, the database and whatever else the cluster runs.",
        ["machine", "device"],
        Column(
            f"topk(50, {queries.disk_full(ANY, 'machine, device')})",
            "Fullest",
            units.PercentUnit,
            rising(0.8, 0.95),
        ),
        sort="Fullest",
    ),
    since="now-24h",
)
