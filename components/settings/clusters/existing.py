"""Settings of an existing cluster."""

from typing import Literal

from components.conventions import CLUSTER_DOMAIN
from components.settings.clusters.base import BaseCluster
from components.settings.types import Domain


class ExistingCluster(BaseCluster):
    """An existing Kubernetes cluster that a kubeconfig describes."""

    kind: Literal["existing"]
    kubeconfig: str | None = None
    """Path of the kubeconfig; by default the one that kubectl uses."""
    context: str | None = None
    """Context in the kubeconfig; by default its current context."""
    domain: Domain = CLUSTER_DOMAIN
    """Domain of the cluster's own DNS."""
