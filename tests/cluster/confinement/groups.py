"""The cgroups of jobs as an operator finds them on the nodes, with either version of cgroups."""

from tests.support.cluster import Cluster

FIND = "find /sys/fs/cgroup -type d -name 'job_*' 2>/dev/null || true"
LIMIT = "$(ls /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null)"
"""Shell expression: the file with the limit of the node's own memory."""
LOCKED = (
    "if [ -e /sys/fs/cgroup/cgroup.controllers ];"
    "then set -- /sys/fs/cgroup /sys/fs/cgroup/system.slice/*.scope;"
    "else set -- /sys/fs/cgroup/freezer /sys/fs/cgroup/cpuset /sys/fs/cgroup/memory"
    " /sys/fs/cgroup/devices; fi"
)
"""Shell code: sets its arguments to the folders that Slurm locks."""


def groups(cluster: Cluster) -> list[str]:
    """Return the cgroups of jobs on all nodes."""
    return [
        f"{node}:{path}"
        for node in cluster.nodes()
        for path in cluster.in_pod(node, "slurmd", "sh", "-c", FIND).split()
    ]
