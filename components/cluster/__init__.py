"""The stack's Kubernetes cluster, its drivers, and the Kubernetes provider.

For each value of the setting `cluster.kind`, a module with the same name creates or finds the
cluster. These modules implement `interface.Kind`. Only the kind's module imports the cloud's SDK,
and a stack imports only the module of its own kind.
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
        module = import_module(f".{kind}", __package__)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("pulumi_"):
            raise
        raise SettingsError(
            f"slurmstack:cluster.kind: '{kind}': {error.name} is not installed; "
            f"run `pip install '.[{kind}]'`"
        ) from None
    return cast(Kind, module).make(ClusterArgs(settings, stack))


def provider(
    cluster: Cluster, name: str = "kubernetes", opts: pulumi.ResourceOptions | None = None
) -> k8s.Provider:
    """Return the Kubernetes provider of a cluster."""
    return k8s.Provider(
        name,
        kubeconfig=cluster.kubeconfig,
        context=cluster.context,
        enable_server_side_apply=True,
        # Update ConfigMaps and Secrets in place. Otherwise, each edit would create an object with
        # a new name, and restart the pods that read it.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
        opts=opts,
    )


def install_drivers(
    name: str,
    settings: Settings,
    cluster: Cluster,
    network: Sequence[pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Install the drivers. Return all resources that must exist before Slurm's resources.

    `network` contains the resources of the pod network, if the stack installs one. `opts` contains
    the Kubernetes provider.
    """
    args = DriversArgs(settings, cluster, network)
    made = [Drivers(name, args, opts)] if args.is_needed() else []
    return [*cluster.ready, *made]
