"""The whole configuration of a stack as typed, frozen models.

A stack file `Pulumi.<stack>.yaml` holds one key `slurmstack:<field>` for each field of `Settings`.
`from_config` checks what Pulumi hands to the program, `read_stack` what stands in the file, for
the tools around the program. Both raise `SettingsError`, whose text is one line for the user.
"""

from components.settings.models import (
    Auth,
    Cluster,
    Controller,
    ExistingCluster,
    Group,
    Jail,
    LocalCluster,
    Login,
    Rest,
    Settings,
    User,
)
from components.settings.nodesets import Empty, Gpus, Nodeset, Toleration, Volume
from components.settings.partitions import Partition
from components.settings.reading import SettingsError, from_config, read_stack
from components.settings.schema import STACK_SCHEMA, stack_schema
from components.settings.slurm import Script, Slurm, Topology
from components.settings.types import parse_ssh_key, parse_time

__all__ = [
    "STACK_SCHEMA",
    "Auth",
    "Cluster",
    "Controller",
    "Empty",
    "ExistingCluster",
    "Gpus",
    "Group",
    "Jail",
    "LocalCluster",
    "Login",
    "Nodeset",
    "Partition",
    "Rest",
    "Script",
    "Settings",
    "SettingsError",
    "Slurm",
    "Toleration",
    "Topology",
    "User",
    "Volume",
    "from_config",
    "parse_ssh_key",
    "parse_time",
    "read_stack",
    "stack_schema",
]
