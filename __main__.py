"""Create the stack's components from the settings."""

from pathlib import Path

import pulumi

from components import cluster as clusters
from components.composition import Slurm, SlurmArgs
from components.exports import exports
from components.network import cilium
from components.settings import SettingsError, check_file, from_config

ROOT = Path(__file__).parent

try:
    check_file(pulumi.get_stack(), ROOT)
    settings = from_config(pulumi.runtime.get_config_env())
    for warning in settings.warnings():
        pulumi.log.warn(warning)
    cluster = clusters.make(settings, pulumi.get_stack())
    provider = clusters.provider(cluster)
    opts = pulumi.ResourceOptions(provider=provider)
    network = cilium.install(settings.network, cluster.ready, opts)
    drivers = clusters.install_drivers(settings, cluster, network, provider)
    slurm = Slurm(
        settings.cluster_name,
        SlurmArgs(settings, ROOT, cluster, after=(*network, *drivers)),
        opts,
    )
except SettingsError as error:
    raise pulumi.RunError(str(error)) from None

for name, value in exports(settings, cluster, slurm).items():
    pulumi.export(name, value)
