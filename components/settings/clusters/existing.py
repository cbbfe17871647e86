"""A cluster that somebody else has made."""

from typing import Literal

from components.conventions import CLUSTER_DOMAIN
from components.settings.clusters.base import BaseCluster
from components.settings.types import Domain


class ExistingCluster(BaseCluster):
    """A Kubernetes cluster that is there already, found through a kubeconfig."""

    kind: Literal["existing"]
    kubeconfig: str | None = None
    """Path of the kubeconfig; by default what kubectl would take."""
    context: str | None = None
    """Context in the kubeconfig; by default its current one."""
    domain: Domain = CLUSTER_DOMAIN
    """Domain of the cluster's own DNS."""
