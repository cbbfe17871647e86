"""The cluster of containers on this machine, which `python -m local up` starts."""

from components.cluster.interface import Cluster, ClusterArgs


def make(args: ClusterArgs) -> Cluster:
    """The stack's own cluster; its kubeconfig is relative to the project."""
    return Cluster(kubeconfig=f".local/{args.stack}/kubeconfig", network="ptp")
