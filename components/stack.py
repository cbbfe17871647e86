"""Everything that a stack creates on its Kubernetes cluster: pod network, drivers and Slurm."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi

from components import cluster as clusters
from components.cluster.interface import Cluster
from components.composition import Slurm, SlurmArgs
from components.network import cilium
from components.settings import Settings


@dataclass(frozen=True)
class StackArgs:
    settings: Settings
    root: Path
    """Folder that paths in the settings are relative to."""
    cluster: Cluster
    secrets: Mapping[str, Mapping[str, pulumi.Input[str]]]
    """Values of the Secrets in the settings."""
    prefix: str = ""
    """Prefix of all resources' names in Pulumi. It is different for each stack of a program."""


def create(args: StackArgs, parent: pulumi.Resource | None = None) -> Slurm:
    """Create the stack, with its own Kubernetes provider."""
    settings, cluster = args.settings, args.cluster
    provider = clusters.provider(
        cluster, f"{args.prefix}kubernetes", pulumi.ResourceOptions(parent=parent)
    )
    opts = pulumi.ResourceOptions(parent=parent, provider=provider)
    network = cilium.install(f"{args.prefix}cilium", settings.network, cluster.ready, opts)
    drivers = clusters.install_drivers(f"{args.prefix}equipment", settings, cluster, network, opts)
    return Slurm(
        f"{args.prefix}{settings.cluster_name}",
        SlurmArgs(
            settings=settings,
            root=args.root,
            cluster=cluster,
            secrets=args.secrets,
            after=(*network, *drivers),
            prefix=args.prefix,
        ),
        opts,
    )
