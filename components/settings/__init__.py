"""Settings of a whole stack as typed, frozen models.

A stack file `Pulumi.<stack>.yaml` has one key `slurmstack:<field>` for each field of `Settings`.
`from_config` checks the configuration that Pulumi passes to the program. `read_stack` checks the
stack file itself, for other tools. Both raise `SettingsError` with one line for each problem.
"""

from components.settings.accounting import (
    Accounting,
    Archive,
    BundledDatabase,
    Dumps,
    ExternalDatabase,
)
from components.settings.backup import Backup, Store
from components.settings.cilium import Cilium
from components.settings.clusters import (
    Cluster,
    ExistingCluster,
    LocalCluster,
    MetalCluster,
)
from components.settings.directory import Directory
from components.settings.health import Health
from components.settings.isolation import Isolation
from components.settings.login import Limits, Login
from components.settings.longchecks import LongCheck, LongChecks
from components.settings.models import (
    Auth,
    Controller,
    Group,
    Jail,
    Network,
    Rest,
    Settings,
    Snapshots,
    User,
)
from components.settings.monitoring import Bundled, Exporter, Grafana, Logs, Monitoring, Operator
from components.settings.nodesets import Gpus, Nodeset
from components.settings.operators import Operators
from components.settings.partitions import Partition
from components.settings.placement import Placement, Toleration, place_of
from components.settings.policy import Policy
from components.settings.reading import (
    SettingsError,
    check_file,
    explained,
    from_config,
    from_values,
    read_stack,
    require_file,
)
from components.settings.reconciler import Reconciler
from components.settings.schema import STACK_SCHEMA, stack_schema
from components.settings.slurm import Script, Slurm, Topology
from components.settings.types import endpoint_host, endpoint_port, parse_ssh_key, parse_time
from components.settings.volumes import Csi, Empty, NfsServer, Source, Submount, Volume

__all__ = [
    "STACK_SCHEMA",
    "Accounting",
    "Archive",
    "Auth",
    "Backup",
    "Bundled",
    "BundledDatabase",
    "Cilium",
    "Cluster",
    "Controller",
    "Csi",
    "Directory",
    "Dumps",
    "Empty",
    "ExistingCluster",
    "Exporter",
    "ExternalDatabase",
    "Gpus",
    "Grafana",
    "Group",
    "Health",
    "Isolation",
    "Jail",
    "Limits",
    "LocalCluster",
    "Login",
    "Logs",
    "LongCheck",
    "LongChecks",
    "MetalCluster",
    "Monitoring",
    "Network",
    "NfsServer",
    "Nodeset",
    "Operator",
    "Operators",
    "Partition",
    "Placement",
    "Policy",
    "Reconciler",
    "Rest",
    "Script",
    "Settings",
    "SettingsError",
    "Slurm",
    "Snapshots",
    "Source",
    "Store",
    "Submount",
    "Toleration",
    "Topology",
    "User",
    "Volume",
    "check_file",
    "endpoint_host",
    "endpoint_port",
    "explained",
    "from_config",
    "from_values",
    "parse_ssh_key",
    "parse_time",
    "place_of",
    "read_stack",
    "require_file",
    "stack_schema",
]
