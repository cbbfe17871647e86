"""The Kubernetes cluster of a stack, and the provider for everything on it.

Each module with the name of a `cluster.kind` creates, or finds, clusters of that kind
(`interface.Kind`). Only this module imports its cloud's SDK, and it is imported only if its kind is
chosen.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import cast

import pulumi
import pulumi_kubernetes as k8s

from components.cluster.drivers import Drivers, DriversArgs
from components.cluster.interface import Cluster, ClusterArgs, Kind
from components.settings import Settings, SettingsError

__all__ = ["Cluster", "install_drivers", "make", "provider"]


def make(settings: Settings, stack: str) -> Cluster:
    """Return the cluster of a stack. Raises `SettingsError` if its SDK is not installed."""
    kind = settings.cluster.kind
    try:
        module = import_module(f"components.cluster.{kind}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("pulumi_"):
            raise
        raise SettingsError(
            f"slurmstack:cluster.kind: '{kind}': {error.name} is not installed; "
            f"run `pip install '.[{kind}]'`"
        ) from None
    return cast(Kind, module).make(ClusterArgs(settings, stack))


def provider(cluster: Cluster) -> k8s.Provider:
    """Return the program's only Kubernetes provider."""
    return k8s.Provider(
        "kubernetes",
        kubeconfig=cluster.kubeconfig,
        context=cluster.context,
        enable_server_side_apply=True,
        # Update objects in place. Otherwise each edit of a file would give it a new name and
        # restart its readers.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
    )


def install_drivers(
    settings: Settings,
    cluster: Cluster,
    network: Sequence[pulumi.Resource],
    provider: k8s.Provider,
) -> list[pulumi.Resource]:
    """Return what must exist before Slurm: the machines, and the charts for their devices.

    `network` are the resources of the pods' network, if the stack installs one.
    """
    args = DriversArgs(settings, cluster, network)
    opts = pulumi.ResourceOptions(provider=provider)
    made = [Drivers("equipment", args, opts)] if args.is_needed() else []
    return [*cluster.ready, *made]
