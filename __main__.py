"""Build the graph of components from the settings."""

from pathlib import Path

import pulumi

from components import cilium, cluster
from components.settings import SettingsError, from_config
from components.slurm import Slurm, SlurmArgs

try:
    settings = from_config(pulumi.runtime.get_config_env())
    kubernetes = cluster.make(settings, pulumi.get_stack())
    provider = cluster.provider(kubernetes)
    network = cilium.install(
        settings.network, kubernetes.ready, pulumi.ResourceOptions(provider=provider)
    )
    equipment = cluster.equip(settings, kubernetes, network, provider)
    slurm = Slurm(
        settings.cluster_name,
        SlurmArgs(settings, Path(__file__).parent, kubernetes, after=(*network, *equipment)),
        pulumi.ResourceOptions(provider=provider),
    )
except SettingsError as error:
    raise pulumi.RunError(str(error)) from None

pulumi.export("cluster_name", settings.cluster_name)
pulumi.export("namespace", slurm.namespace)
pulumi.export("login_host_key", slurm.login_host_key)
pulumi.export("report", slurm.report)
