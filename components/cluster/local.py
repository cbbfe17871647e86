"""The cluster that `python -m local up` starts in containers on this machine."""

from components.cluster.interface import Cluster, ClusterArgs


def make(args: ClusterArgs) -> Cluster:
    """Return the stack's own cluster; the path of its kubeconfig is relative to the project."""
    return Cluster(kubeconfig=f".local/{args.stack}/kubeconfig")
