"""The Kubernetes cluster underneath, whatever it is, as a provider for what stands on it."""

import os
from pathlib import Path

import pulumi_kubernetes as k8s

from components.settings import Cluster, LocalCluster


def kubeconfig(cluster: Cluster, stack: str) -> str:
    """Path of the cluster's kubeconfig; that of the local one is relative to the project.

    A path and no contents: it is the same on every machine, and certificates that are renewed
    are no change of the stack.
    """
    if isinstance(cluster, LocalCluster):
        return f".local/{stack}/kubeconfig"
    default = os.environ.get("KUBECONFIG", "~/.kube/config")
    return str(Path(cluster.kubeconfig or default).expanduser())


def provider(cluster: Cluster, stack: str) -> k8s.Provider:
    """The one Kubernetes provider of the program."""
    context = None if isinstance(cluster, LocalCluster) else cluster.context
    return k8s.Provider(
        "kubernetes",
        kubeconfig=kubeconfig(cluster, stack),
        context=context,
        enable_server_side_apply=True,
        # In place, or every edit of a file would give it a new name and restart its readers.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
    )
