"""Clusters that exist already."""

import os
from pathlib import Path
from typing import cast

from components.cluster.classes import ready_labels
from components.cluster.interface import Cluster, ClusterArgs, NodeClass
from components.settings import ExistingCluster, SettingsError


def make(args: ClusterArgs) -> Cluster:
    """Return the cluster to which the kubeconfig in the settings points.

    Pulumi's state records the path of the kubeconfig instead of its contents. So if a certificate
    in the file is renewed, Pulumi sees no change.
    """
    settings = cast(ExistingCluster, args.settings.cluster)
    path = str(Path(settings.kubeconfig or _default()).expanduser())
    labels = {
        nodeset.name: ready_labels(nodeset, args.settings) for nodeset in args.settings.nodesets
    }
    return Cluster(
        kubeconfig=path,
        context=settings.context,
        node_classes={name: NodeClass(labels=found) for name, found in labels.items() if found},
    )


def _default() -> str:
    """Return the kubeconfig that kubectl would use.

    Raises `SettingsError` if the environment names several files.
    """
    found = os.environ.get("KUBECONFIG") or "~/.kube/config"
    if os.pathsep in found:
        raise SettingsError(
            "slurmstack:cluster.kubeconfig: is not set, and the environment variable KUBECONFIG"
            f" names several files: '{found}'; expected a single file; set cluster.kubeconfig to"
            " the file that describes this cluster"
        )
    return found
