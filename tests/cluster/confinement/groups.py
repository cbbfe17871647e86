"""Find the cgroups of jobs on the nodes, with version 1 or 2 of cgroups."""

from tests.support.cluster import Cluster

FIND = "find /sys/fs/cgroup -type d -name 'job_*' 2>/dev/null || true"
LIMIT = "$(ls /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null)"
"""Shell expression for the path of the file with the memory limit of the node itself."""
LOCKED = (
    "if [ -e /sys/fs/cgroup/cgroup.controllers ];"
    "then set -- /sys/fs/cgroup /sys/fs/cgroup/system.slice/*.scope;"
    "else set -- /sys/fs/cgroup/freezer /sys/fs/cgroup/cpuset /sys/fs/cgroup/memory"
    " /sys/fs/cgroup/devices; fi"
)
"""Shell code that sets its arguments ($@) to the folders that Slurm locks."""


def groups(cluster: Cluster) -> list[str]:
    """Return the cgroups of jobs on all nodes."""
    return [
        f"{node}:{path}"
        for node in cluster.nodes()
        for path in cluster.in_pod(node, "slurmd", "sh", "-c", FIND).split()
    ]
