"""Storage that may fill up: the jail with its shared volumes, and the machines' own disks."""

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import BigValueTextMode

from monitoring.dashboards import queries
from monitoring.dashboards.parts import Column, Query, board, graph, rising, stat, table
from monitoring.dashboards.queries import ANY, of_nodes

_SIZE = "max by (volume) (slurmstack_jail_size_bytes)"
_FREE = "min by (volume) (slurmstack_jail_available_bytes)"
_FILES = "max by (volume) (slurmstack_jail_files)"
_FILES_FREE = "min by (volume) (slurmstack_jail_files_free)"
_GROWTH = "min by (volume) (deriv(slurmstack_jail_available_bytes[6h]))"
_USED, _FILES_USED = f"1 - {_FREE} / ({_SIZE} > 0)", f"1 - {_FILES_FREE} / ({_FILES} > 0)"
"""Used shares, 0 to 1."""
_VOLUME, _BOTH = "{{volume}}", BigValueTextMode.VALUE_AND_NAME

DASHBOARD = board(
    "slurmstack-storage",
    "Storage",
    "What may fill up: the jail with its volumes, which all share, and the machines' own disks.",
    stat(
        "Jail in use",
        "Share that is in use of the shared root, or of that volume in it which is fullest. At 100 "
        "% nobody can write there, and jobs fail: find who has most (`du -xsh /home/*`), or give "
        "it more (of `jail` itself, `jail.size`).",
        units.PercentUnit,
        f"topk(1, {_USED})",
        legend=_VOLUME,
        shows=_BOTH,
        none="not known",
        steps=rising(0.8, 0.9),
    ),
    stat(
        "Jail free",
        "What can still be written to the shared root, or to that volume in it which has least "
        "room. What a large job writes in a night should fit.",
        units.BytesIEC,
        f"bottomk(1, {_FREE})",
        legend=_VOLUME,
        shows=_BOTH,
        none="not known",
    ),
    stat(
        "Jail full in",
        "When the first of the shared root and the volumes in it is full, if it goes on as in the "
        "last six hours. Less than a day: somebody should look now.",
        units.Seconds,
        f"bottomk(1, {_FREE} / -({_GROWTH} < 0))",
        legend=_VOLUME,
        shows=_BOTH,
        none="does not grow",
        steps=((None, "red"), (86400, "orange"), (7 * 86400, "green")),
    ),
    stat(
        "Files of the jail",
        "Share of the files that the shared root may have, or that volume in it which has most of "
        "its own. At 100 % nothing can be made there, however much room is left: look for millions "
        "of small files.",
        units.PercentUnit,
        f"topk(1, {_FILES_USED})",
        legend=_VOLUME,
        shows=_BOTH,
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
    table(
        "Volumes of the jail",
        "The shared root (`jail`) and the volumes in it that all nodes write to. One that is "
        "missing does not answer: see the exporter's log.",
        ["volume"],
        Column(_SIZE, "Size", units.BytesIEC),
        Column(_FREE, "Free", units.BytesIEC),
        Column(_USED, "In use", units.PercentUnit, rising(0.8, 0.9)),
        Column(_FILES_USED, "Files in use", units.PercentUnit, rising(0.8, 0.9)),
        none="not known",
        width=24,
        sort="In use",
    ),
    graph(
        "Size of the jail",
        "What is in use of the shared root (`jail`), and of each volume in it. A steep rise is one "
        "job or one user: see who writes.",
        units.BytesIEC,
        Query(f"{_SIZE} - {_FREE}", _VOLUME),
        none="not known",
    ),
    graph(
        "Number of files in the jail",
        "Files that the shared root (`jail`) has, and each volume in it. Rising without its size "
        "rising with it: many small files, such as environments of Python and data sets that were "
        "unpacked.",
        units.Short,
        Query(f"{_FILES} - {_FILES_FREE}", _VOLUME),
        none="not known",
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
