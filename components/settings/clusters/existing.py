"""Settings of an existing cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from components.conventions import CLUSTER_DOMAIN
from components.settings.clusters.base import BaseCluster, Problem
from components.settings.types import Domain

if TYPE_CHECKING:
    from components.settings.models import Settings


class ExistingCluster(BaseCluster):
    """An existing Kubernetes cluster that a kubeconfig describes."""

    kind: Literal["existing"]
    kubeconfig: str | None = None
    """Path of the kubeconfig; by default the one that kubectl uses."""
    context: str | None = None
    """Context in the kubeconfig; by default its current context."""
    domain: Domain = CLUSTER_DOMAIN
    """Domain of the cluster's own DNS."""

    def warnings(self, stack: Settings) -> Iterator[Problem]:
        """Warn if kubectl's current context chooses the cluster, or if pods cannot pull images."""
        if self.context is None:
            yield (
                "cluster.context",
                (
                    "is not set, so the deploy uses the current context of the kubeconfig, which "
                    "`kubectl config use-context` changes; set cluster.context to the name of "
                    "this cluster's context"
                ),
            )
        if stack.registry is None:
            yield (
                "registry",
                (
                    "is not set, so no pod starts unless you load the images into each Kubernetes "
                    "node; set 'registry' to a registry that the nodes can reach"
                ),
            )
