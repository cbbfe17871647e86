"""The stack's Kubernetes cluster, its drivers, and the Kubernetes provider.

Each value of `cluster.kind` has a module with the same name (`interface.Kind`). The module creates
or finds the cluster. Only this module imports the cloud's SDK, and only stacks of this kind import
the module.
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
    """Create or find the stack's cluster. Raises `SettingsError` if the SDK is not installed."""
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
        # Update ConfigMaps and Secrets in place. Otherwise, each edit would create an object with
        # a new name, and restart the pods that read it.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
    )


def install_drivers(
    settings: Settings,
    cluster: Cluster,
    network: Sequence[pulumi.Resource],
    provider: k8s.Provider,
) -> list[pulumi.Resource]:
    """Install the drivers. Return all resources that must exist before Slurm.

    `network` contains the resources of the pod network, if the stack installs one.
    """
    args = DriversArgs(settings, cluster, network)
    opts = pulumi.ResourceOptions(provider=provider)
    made = [Drivers("equipment", args, opts)] if args.is_needed() else []
    return [*cluster.ready, *made]
