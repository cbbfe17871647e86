"""Everything that a stack creates on its Kubernetes cluster: pod network, drivers and Slurm."""

from dataclasses import replace

import pulumi

from components import cluster as clusters
from components.composition import Slurm, SlurmArgs
from components.files import check_files
from components.network import cilium


def create(args: SlurmArgs, parent: pulumi.Resource | None = None) -> Slurm:
    """Create the stack with its own Kubernetes provider. The pod network and the drivers are
    created before Slurm.

    Raises `SettingsError`, and creates nothing, if a file that the settings name cannot be read.
    """
    settings, cluster = args.settings, args.cluster
    check_files(settings, args.root)
    provider = clusters.provider(
        cluster, args.named("kubernetes"), pulumi.ResourceOptions(parent=parent)
    )
    opts = pulumi.ResourceOptions(parent=parent, provider=provider)
    network = cilium.install(args.named("cilium"), settings.network, cluster.ready, opts)
    drivers = clusters.install_drivers(args.named("equipment"), settings, cluster, network, opts)
    after = (*args.after, *network, *drivers)
    return Slurm(args.named(settings.cluster_name), replace(args, after=after), opts)
