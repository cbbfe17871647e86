"""The Kubernetes cluster underneath, whatever it is, and a provider for what stands on it.

Each module named as a `cluster.kind` makes, or finds, clusters of that kind (`interface.Kind`); it
alone imports its cloud's SDK, and is imported only where it is chosen.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import cast

import pulumi
import pulumi_kubernetes as k8s

from components.cluster.equipment import Equipment, EquipmentArgs
from components.cluster.interface import Cluster, ClusterArgs, Kind
from components.settings import Settings, SettingsError

__all__ = ["Cluster", "equip", "make", "provider"]


def make(settings: Settings, stack: str) -> Cluster:
    """The cluster of a stack. Raises `SettingsError` where its SDK is not installed."""
    kind = settings.cluster.kind
    try:
        module = import_module(f"components.cluster.{kind}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("pulumi_"):
            raise
        raise SettingsError(
            f"slurmstack:cluster.kind: '{kind}': {error.name} is not installed; "
            f"pip install '.[{kind}]'"
        ) from None
    return cast(Kind, module).make(ClusterArgs(settings, stack))


def provider(cluster: Cluster) -> k8s.Provider:
    """The one Kubernetes provider of the program."""
    return k8s.Provider(
        "kubernetes",
        kubeconfig=cluster.kubeconfig,
        context=cluster.context,
        enable_server_side_apply=True,
        # In place, or every edit of a file would give it a new name and restart its readers.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
    )


def equip(
    settings: Settings,
    cluster: Cluster,
    network: Sequence[pulumi.Resource],
    provider: k8s.Provider,
) -> list[pulumi.Resource]:
    """What must be there before Slurm: the machines, and what is installed for their devices.

    `network` is what their pods have a network by, where the stack brings one.
    """
    args = EquipmentArgs(settings, cluster, network)
    opts = pulumi.ResourceOptions(provider=provider)
    made = [Equipment("equipment", args, opts)] if args.is_needed() else []
    return [*cluster.ready, *made]
