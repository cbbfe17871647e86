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
    "Storage that may fill up: the jail with its shared volumes, and the machines' local disks.",
    stat(
        "Jail in use",
        "How full the fullest volume is. The panel names the volume: `jail` is the shared root, "
        "other names are volumes mounted in it. At 100 %, writes and jobs fail: find the largest "
        "users (`du -xsh /home/*`), or enlarge the volume (`jail`: set `jail.size`).",
        units.PercentUnit,
        f"topk(1, {_USED})",
        legend=_VOLUME,
        shows=_BOTH,
        none="not known",
        steps=rising(0.8, 0.9),
    ),
    stat(
        "Jail free",
        "Free space of the volume with the least free space. The panel names the volume: `jail` is "
        "the shared root, other names are volumes mounted in it. The space should suffice for the "
        "output of a large job in one night.",
        units.BytesIEC,
        f"bottomk(1, {_FREE})",
        legend=_VOLUME,
        shows=_BOTH,
        none="not known",
    ),
    stat(
        "Jail full in",
        "Time until the first volume is full, if it continues to grow as in the last six hours. If "
        "less than a day is left, free space or enlarge the volume now.",
        units.Seconds,
        f"bottomk(1, {_FREE} / -({_GROWTH} < 0))",
        legend=_VOLUME,
        shows=_BOTH,
        none="does not grow",
        steps=((None, "red"), (86400, "orange"), (7 * 86400, "green")),
    ),
    stat(
        "Jail files in use",
        "The highest used share of inodes of all volumes. The panel names the volume:"
        " `jail` is the shared root, other names are volumes mounted in it. Each file"
        " needs one inode. At 100 %, users cannot create files, even if space is free:"
        " look for millions of small files.",
        units.PercentUnit,
        f"topk(1, {_FILES_USED})",
        legend=_VOLUME,
        shows=_BOTH,
        none="no limit",
        steps=rising(0.8, 0.9),
    ),
    stat(
        "Fullest disk",
        "Used share of the fullest local file system of all machines. At 95 %, the check `disk` "
        "drains the node. Find the node in *Nodes by fullest disk*, and delete old files in its "
        "/tmp.",
        units.PercentUnit,
        f"max({queries.disk_full(ANY)})",
        steps=rising(0.8, 0.95),
    ),
    stat(
        "Busiest disk",
        "Share of time that the busiest disk of all machines was busy. If it stays at 100 %, "
        "programs on that machine wait for the disk: find the machine in *Busiest disks*.",
        units.PercentUnit,
        f"max({queries.disk_busy(ANY)})",
        steps=rising(0.9, 1),
    ),
    table(
        "Volumes of the jail",
        "The shared root (`jail`), and the volumes in it that all nodes write to. If a volume is "
        "missing, its storage does not answer: read the exporter's log.",
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
        "Used space in the jail",
        "Used space of the shared root (`jail`), and of each volume in it. If a line"
        " rises steeply, find the job or user with the most new data (`du -xsh /home/*`).",
        units.BytesIEC,
        Query(f"{_SIZE} - {_FREE}", _VOLUME),
        none="not known",
    ),
    graph(
        "Number of files in the jail",
        "Files in the shared root (`jail`), and in each volume in it. If their number rises and "
        "the used space does not, the files are small: look for Python environments and unpacked "
        "data sets.",
        units.Short,
        Query(f"{_FILES} - {_FILES_FREE}", _VOLUME),
        none="not known",
    ),
    graph(
        "Fullest disks",
        "Used share of the fullest local disk, for the ten machines where it is highest. The usual "
        "causes are job files in /tmp, images and logs: delete old ones.",
        units.PercentUnit,
        Query(f"topk(10, {queries.disk_full(ANY)})", "{{machine}}"),
        highest=1,
    ),
    graph(
        "Busiest disks",
        "Share of time that the busiest local disk was busy, for the ten machines where it is "
        "highest. A disk that stays at 100 % is worn out, or "
        "serves a job that should use memory or the jail.",
        units.PercentUnit,
        Query(f"topk(10, {queries.disk_busy(ANY)})", "{{machine}}"),
        highest=1,
    ),
    table(
        "Nodes by fullest disk",
        "How full the fullest local disk of each Slurm node's machine is. At 95 %, a health check "
        "drains the node: before that, delete old files of jobs in the node's /tmp. A name links "
        "to the node's dashboard.",
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
        "The fullest file systems of all machines, by device. Machines without a Slurm node run "
        "the controller, the database and other programs.",
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
