"""Build the graph of components from the settings."""

from pathlib import Path

import pulumi

from components import cluster
from components.composition import Slurm, SlurmArgs
from components.network import cilium
from components.settings import SettingsError, from_config

try:
    settings = from_config(pulumi.runtime.get_config_env())
    ground = cluster.make(settings, pulumi.get_stack())
    provider = cluster.provider(ground)
    net = cilium.install(settings.network, ground.ready, pulumi.ResourceOptions(provider=provider))
    equipment = cluster.equip(settings, ground, net, provider)
    slurm = Slurm(
        settings.cluster_name,
        SlurmArgs(settings, Path(__file__).parent, ground, after=(*net, *equipment)),
        pulumi.ResourceOptions(provider=provider),
    )
except SettingsError as error:
    raise pulumi.RunError(str(error)) from None

pulumi.export("cluster_name", settings.cluster_name)
pulumi.export("namespace", slurm.namespace)
pulumi.export("login_host_key", slurm.login_host_key)
pulumi.export("report", slurm.report)
