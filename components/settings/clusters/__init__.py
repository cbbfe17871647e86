"""Kubernetes clusters: each kind has one model here and one file in `components.cluster`.

To add a kind, add its model to `Cluster`; all other code finds it there.
"""

from collections.abc import Mapping
from typing import Annotated, Final, get_args

from pydantic import Field

from components.settings.clusters.base import BaseCluster
from components.settings.clusters.eks import EksCluster
from components.settings.clusters.existing import ExistingCluster
from components.settings.clusters.local import LocalCluster
from components.settings.clusters.machines import Machines, System
from components.settings.clusters.metal import MetalCluster
from components.settings.clusters.nebius import NebiusCluster

Cluster = Annotated[
    EksCluster | ExistingCluster | LocalCluster | MetalCluster | NebiusCluster,
    Field(discriminator="kind"),
]
KINDS: Final[Mapping[str, type[BaseCluster]]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model
    for model in get_args(get_args(Cluster)[0])
}
"""The models by `kind`."""

__all__ = [
    "KINDS",
    "BaseCluster",
    "Cluster",
    "EksCluster",
    "ExistingCluster",
    "LocalCluster",
    "Machines",
    "MetalCluster",
    "NebiusCluster",
    "System",
]
