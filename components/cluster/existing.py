"""Clusters that exist already."""

import os
from pathlib import Path
from typing import cast

from components.cluster.classes import ready_labels
from components.cluster.interface import Cluster, ClusterArgs, NodeClass
from components.settings import ExistingCluster


def make(args: ClusterArgs) -> Cluster:
    """Return the cluster to which the kubeconfig in the settings points.

    The stack records the kubeconfig's path instead of its contents, so that renewed certificates
    do not change the stack.
    """
    settings = cast(ExistingCluster, args.settings.cluster)
    default = os.environ.get("KUBECONFIG", "~/.kube/config")
    path = str(Path(settings.kubeconfig or default).expanduser())
    labels = {
        nodeset.name: ready_labels(nodeset, args.settings) for nodeset in args.settings.nodesets
    }
    return Cluster(
        kubeconfig=path,
        context=settings.context,
        node_classes={name: NodeClass(labels=found) for name, found in labels.items() if found},
    )
