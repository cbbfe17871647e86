"""Create the stack's components from the settings."""

from pathlib import Path

import pulumi

from components import cluster as clusters
from components import stack
from components.composition import SlurmArgs
from components.exports import exports
from components.settings import SettingsError, check_file, from_config

ROOT = Path(__file__).parent

try:
    config = pulumi.runtime.get_config_env()
    settings = from_config(config, check_file(pulumi.get_stack(), ROOT, config))
    for warning in settings.warnings():
        pulumi.log.warn(warning)
    cluster = clusters.make(settings, pulumi.get_stack())
    secrets = {
        name: {entry: value.get_secret_value() for entry, value in entries.items()}
        for name, entries in settings.secrets.items()
    }
    slurm = stack.create(SlurmArgs(settings, ROOT, cluster, secrets))
except SettingsError as error:
    raise pulumi.RunError(str(error)) from None

for name, value in exports(settings, cluster, slurm).items():
    pulumi.export(name, value)
