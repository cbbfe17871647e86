"""Settings of a whole stack as one typed, frozen model."""

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from components.conventions import (
    CHECKS_PARTITION,
    CHECKS_USER,
    GPU_NAMESPACE,
    JAIL,
    OWN_SECRETS,
    PODS_PARTITION,
    PROJECT,
    SYSTEM_ACCOUNTS,
    USER_IDS,
    node_names,
)
from components.settings import contents
from components.settings.accounting import Accounting
from components.settings.accounts import NORMAL, ROOT
from components.settings.backup import Backup
from components.settings.bridge import Bridge
from components.settings.cilium import Cilium
from components.settings.clusters import Cluster
from components.settings.containers import Containers
from components.settings.directory import Directory
from components.settings.health import GPU_COUNT, Health, expected_gpus
from components.settings.login import Login
from components.settings.longchecks import LongChecks
from components.settings.monitoring import Monitoring
from components.settings.nodesets import AMD, NVIDIA, Nodeset
from components.settings.ondemand import OnDemandLimits
from components.settings.operators import Operators
from components.settings.partitions import Partition
from components.settings.placement import Placement, check_placement
from components.settings.policy import Policy
from components.settings.reconciler import Reconciler
from components.settings.slurm import Block, Slurm, Switch, hosts_of
from components.settings.types import (
    Cidr,
    Cron,
    DnsLabel,
    DnsPattern,
    MemoryMiB,
    Model,
    Number,
    ObjectName,
    Path,
    ProjectFile,
    Registry,
    SecretEntry,
    SecretName,
    SecretText,
    SlurmTime,
    SshKey,
    StorageClassName,
    UserName,
    Word,
    cross_field,
    duplicates,
    endpoint_port,
    known_names,
)
from components.settings.volumes import Csi, NfsExport, NfsServer, Submount, each_its_own
from components.settings.warned import warned

_CREDENTIAL = re.compile(
    r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|CREDENTIALS?|API_?KEY|ACCESS_KEY)$", re.IGNORECASE
)
"""Pattern of names of environment variables that usually contain credentials."""
_LEAST_JAIL: Final = 1024
"""Minimum size of the jail in MiB: the files of its image (images/jail) have nearly this size."""
_GRPC = 4317
"""Port of OTLP over gRPC (OpenTelemetry protocol specification)."""


class Jail(Model):
    """The shared root file system of login nodes and workers."""

    size: MemoryMiB = Field("100GiB", validate_default=True)
    """Size of the volume, such as '100GiB'."""
    storage_class: StorageClassName | None = None
    """StorageClass that supports ReadWriteMany; by default the cluster's default."""
    nfs: NfsExport | None = None
    """Folder that an NFS server exports, instead of a StorageClass. The server must let root own
    files in this folder (no_root_squash)."""
    csi: Csi | None = None
    """Existing volume of a CSI driver, instead of a StorageClass."""
    host_path: Path | None = None
    """Folder that all Kubernetes nodes share, instead of a StorageClass."""
    claim: DnsLabel | None = None
    """Name of an existing PersistentVolumeClaim with ReadWriteMany, instead of a StorageClass."""
    server: NfsServer | None = None
    """The stack's own NFS server, instead of a StorageClass; `size` is the size of its volume."""
    refresh: Annotated[int, Field(ge=0), Number] = 0
    """Generation of the system files. Raise it by one to unpack the jail image again. Lower it by
    one to restore the previous system files. Users' files do not change."""
    volumes: tuple[Submount, ...] = ()
    """Further volumes in the jail, on all nodes."""

    def origin(self) -> tuple[str, ...]:
        """Return what determines the volume: the kind of its source and, for a claim, the claim's
        name.

        Return () for a StorageClass. If this value changes, the jail moves to another volume. The
        name of a protected ConfigMap contains the value, so that a deploy refuses such a change.
        """
        if self.claim:
            return ("claim", self.claim)
        static = {
            "nfs": self.nfs,
            "csi": self.csi,
            "host": self.host_path,
            "server": self.server,
        }
        return tuple(kind for kind, given in static.items() if given)

    def is_elsewhere(self) -> bool:
        """Return whether the settings choose the jail's volume or its StorageClass.

        If they do not, the jail is on the cloud's file system, or on the default StorageClass.
        """
        return bool(self.origin() or self.storage_class)

    @model_validator(mode="after")
    def _is_one_volume(self) -> Self:
        kinds = ("storage_class", "nfs", "csi", "host_path", "claim", "server")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) > 1:
            raise cross_field(
                given[0],
                f"cannot be combined with {' and '.join(map(repr, given[1:]))}, because the "
                "jail has one source; keep only one of these settings",
            )
        if self.claim and "size" in self.model_fields_set:
            raise cross_field(
                "size",
                f"{self.size} MiB: has no effect, because the existing claim in jail.claim "
                "determines the size; remove jail.size",
            )
        return self

    @model_validator(mode="after")
    def _is_writable(self) -> Self:
        for kind, volume in (("nfs", self.nfs), ("csi", self.csi)):
            if volume and "ro" in volume.options:
                raise cross_field(
                    f"{kind}.options",
                    "'ro': the deploy and users must be able to write to the jail; remove 'ro'",
                )
        return self

    @model_validator(mode="after")
    def _has_space_for_the_system(self) -> Self:
        # An NFS, CSI or host volume has a size of its own. Kubernetes only records the size in the
        # settings, so any size is allowed.
        is_real = not (self.nfs or self.csi or self.host_path)
        if is_real and self.size < _LEAST_JAIL:
            raise cross_field(
                "size",
                f"{self.size}MiB: expected at least {_LEAST_JAIL // 1024}GiB, because the system "
                "files alone need this space",
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        each_its_own(self.volumes)
        return self


class Snapshots(Model):
    """VolumeSnapshots of volumes. The storage must support them."""

    jail: ObjectName | None = None
    """VolumeSnapshotClass for the jail's volume; by default, this volume has no snapshots."""
    state: ObjectName | None = None
    """VolumeSnapshotClass for the controller's volume; by default, this volume has no snapshots."""
    schedule: Cron = "47 2 * * *"
    """Cron schedule (minute, hour, day of the month, month, day of the week), in UTC."""
    keep: Annotated[int, Field(ge=1, le=1000), Number] = 7
    """Number of snapshots to keep of each volume. Old ones are deleted when a new one is ready."""

    @model_validator(mode="after")
    def _has_a_class(self) -> Self:
        if not (self.jail or self.state):
            raise cross_field(
                "jail",
                "the section takes no snapshots, because it names no VolumeSnapshotClass; set "
                "snapshots.jail or snapshots.state, or remove the section",
            )
        return self


class Controller(Model):
    """slurmctld and its state."""

    state_size: MemoryMiB = Field("10GiB", validate_default=True)
    """Size of the volume for the queue and the state of nodes."""
    storage_class: StorageClassName | None = None
    """StorageClass of the controller's volume; by default the cluster's default."""
    standby: bool = False
    """Run a standby controller on another Kubernetes node. The standby takes over within seconds if
    the first controller does not respond. The StorageClass must support ReadWriteMany. Choose
    before the first deploy."""


class User(Model):
    """A user with the same name and id on login nodes, workers and the controller."""

    name: UserName
    uid: Annotated[int, Field(ge=USER_IDS.start, lt=USER_IDS.stop), Number]
    """User id, and group id of the user's private group."""
    ssh_keys: tuple[SshKey, ...] = ()
    """Public SSH keys of the user, for logins."""
    ssh_key_files: tuple[str, ...] = ()
    """Files with one public key each: paths relative to the project, read at deploy time."""
    shell: Path = "/bin/bash"


class Group(Model):
    """A group of users, in addition to each user's private group."""

    name: UserName
    gid: Annotated[int, Field(ge=USER_IDS.start, lt=USER_IDS.stop), Number]
    """Group id. It must differ from every uid: the uid is also the id of a user's private group."""
    members: tuple[UserName, ...] = ()
    """Names of users."""


class Auth(Model):
    """Authentication between daemons and clients."""

    type: Literal["munge", "slurm"] = "munge"
    """munge: a munged in every pod; slurm: Slurm's own plugin. Choose before the first deploy."""
    rotations: tuple[AwareDatetime, ...] = ()
    """Times at which a new key takes effect, such as '2026-12-01T03:00:00Z', oldest first. Add a
    time at least three minutes in advance, so that every pod has the key by then. You may remove
    past times, except the latest one."""

    @field_validator("rotations")
    @classmethod
    def _in_order(cls, value: tuple[datetime, ...]) -> tuple[datetime, ...]:
        if list(value) != sorted(set(value)):
            raise PydanticCustomError(
                "rotations", "expected a list of times without duplicates, the oldest first"
            )
        return value


class Rest(Model):
    """slurmrestd, Slurm's HTTP interface, and the tokens (JWT) that Slurm accepts."""

    replicas: Annotated[int, Field(ge=1, le=16), Number] = 1
    """Number of slurmrestd pods."""
    jwks: ProjectFile | None = None
    """File with the public keys (JSON Web Key Set) of an identity provider: a path relative to the
    project, read at deploy time. Slurm then accepts the provider's tokens and its own tokens."""
    user_claim: Word | None = None
    """Claim that contains the user's name in the provider's tokens; by default `sun`, as in Slurm's
    own tokens."""
    token_lifetime: SlurmTime = "30-00:00:00"
    """Longest lifetime of a token from `scontrol token`; UNLIMITED: no limit."""

    @model_validator(mode="after")
    def _claim_has_jwks(self) -> Self:
        if self.user_claim and not self.jwks:
            raise cross_field(
                "user_claim",
                f"'{self.user_claim}': has no effect without rest.jwks; add rest.jwks, or "
                "remove rest.user_claim",
            )
        return self


def _policies(value: object) -> object:
    return {True: "kubernetes", False: "none"}[value] if isinstance(value, bool) else value


Policies = Annotated[
    Literal["kubernetes", "cilium", "both", "none"],
    BeforeValidator(_policies),
    WithJsonSchema({"enum": ["kubernetes", "cilium", "both", "none", True, False]}),
]
"""`true` means `kubernetes`, and `false` means `none`: older stack files have these values."""


class Network(Model):
    """Allowed network connections."""

    policies: Policies = "kubernetes"
    """Kind of policies that protect Slurm's daemons. `kubernetes`: NetworkPolicies, if the
    cluster's network plugin enforces them; `cilium`: CiliumNetworkPolicies, which can also match
    DNS names, the Kubernetes API and cloud metadata; `both`; `none`."""
    names: tuple[DnsPattern, ...] | None = None
    """DNS names outside the cluster that users can reach, such as 'pypi.org' or '*.debian.org'; by
    default all names. Requires policies: cilium."""
    guard: bool = True
    """Run a packet filter in login and worker pods, independent of the network plugin. It blocks
    users from cloud metadata, the Kubernetes API, kubelets, NFS servers and Lustre servers."""
    refuse: tuple[Cidr, ...] = ()
    """Further addresses to block for users, such as '10.0.0.0/16'; do not add pod addresses."""
    cilium: Cilium | None = None
    """Install and upgrade Cilium; by default the stack does not change the cluster's network."""

    def kinds(self) -> frozenset[str]:
        """Return the kinds of policies in use."""
        both = {"both": ("kubernetes", "cilium"), "none": ()}
        return frozenset(both.get(self.policies, (self.policies,)))

    @model_validator(mode="after")
    def _names_are_judged_by_cilium_alone(self) -> Self:
        # Only Cilium's policies know DNS names. A NetworkPolicy beside them has to allow all
        # destinations, and one policy that allows a connection is enough. So with both kinds of
        # policies, `names` would have no effect.
        if self.names is not None and self.policies != "cilium":
            raise cross_field(
                "names",
                f"has no effect, because network.policies is '{self.policies}'; set "
                "network.policies to 'cilium', or remove this setting",
            )
        return self


_ENTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "accounting.external.password_secret": ("password",),
    "accounting.backup.password_secret": ("password",),
    "accounting.backup.s3.secret": ("access_key", "secret_key"),
    "backup.password_secret": ("password",),
    "backup.s3.secret": ("access_key", "secret_key"),
    "monitoring.bundled.alertmanager_secret": ("alertmanager.yml",),
    "directory.password_secret": ("password",),
    "containers.credentials_secret": (".dockerconfigjson",),
    "pull_secrets": (".dockerconfigjson",),
}
"""Entries that a Secret must have, by the setting that names the Secret."""


class Settings(Model):
    """All settings of a stack file."""

    cluster_name: DnsLabel
    """Name of the Slurm cluster."""
    cluster: Cluster
    namespace: DnsLabel = "slurm"
    """Kubernetes namespace of the Slurm layer."""
    registry: Registry | None = None
    """Registry to push images to and to pull images from. Without a registry, images are loaded
    into local nodes."""
    pull_secrets: tuple[SecretName, ...] = ()
    """Secrets in the stack's namespace with the registry's credentials."""
    secrets: dict[ObjectName, dict[SecretEntry, SecretText]] = {}
    """Secrets that the stack creates in its namespace, by name, with encrypted entries. Other
    settings, such as `pull_secrets`, name them."""
    protect_data: bool = True
    """Refuse deploys that would delete the jail or the controller's state."""
    jail: Jail = Field(default_factory=Jail)
    containers: Containers = Field(default_factory=Containers)
    controller: Controller = Field(default_factory=Controller)
    nodesets: tuple[Nodeset, ...] = ()
    on_demand: OnDemandLimits = Field(default_factory=OnDemandLimits)
    bridge: Bridge | None = None
    """Let Slurm schedule pods of Kubernetes; by default Slurm schedules only jobs."""
    partitions: tuple[Partition, ...] = ()
    """Partitions; by default one partition, `main`, over all nodesets."""
    slurm: Slurm = Field(default_factory=Slurm)
    health: Health = Field(default_factory=Health)
    auth: Auth = Field(default_factory=Auth)
    accounting: Accounting = Field(default_factory=Accounting)
    rest: Rest = Field(default_factory=Rest)
    login: Login = Field(default_factory=Login)
    long_checks: LongChecks = Field(default_factory=LongChecks)
    directory: Directory | None = None
    """LDAP directory with further users; by default there are no users except `users`."""
    network: Network = Field(default_factory=Network)
    snapshots: Snapshots | None = None
    """Scheduled snapshots of volumes; by default there are no snapshots."""
    backup: Backup | None = None
    """Scheduled backups of the queue, the accounting and the jail; by default there are none."""
    placement: Placement = {}
    operators: Operators = Field(default_factory=Operators)
    monitoring: Monitoring = Field(default_factory=Monitoring)
    policy: Policy = Field(default_factory=Policy)
    reconciler: Reconciler = Field(default_factory=Reconciler)
    users: tuple[User, ...] = ()
    groups: tuple[Group, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        named: dict[str, Iterator[str]] = {
            "nodesets": (nodeset.name for nodeset in self.nodesets),
            "partitions": (partition.name for partition in self.partitions),
            "users": (user.name for user in self.users),
            "groups": (group.name for group in self.groups),
        }
        for field, names in named.items():
            for name in duplicates(names):
                raise cross_field(field, f"two entries are named '{name}'; give each a unique name")
        for uid in duplicates(str(user.uid) for user in self.users):
            raise cross_field("users", f"two users have the uid {uid}; give each a unique uid")
        return self

    @model_validator(mode="after")
    def _namespace_is_the_stacks(self) -> Self:
        if self.namespace == "default" or self.namespace.startswith("kube-"):
            raise cross_field(
                "namespace",
                f"'{self.namespace}': this namespace belongs to Kubernetes; choose a namespace "
                "that only this stack uses",
            )
        return self

    @model_validator(mode="after")
    def _accounts_are_not_the_systems(self) -> Self:
        named = {f"users[{index}].name": user.name for index, user in enumerate(self.users)}
        named |= {f"groups[{index}].name": group.name for index, group in enumerate(self.groups)}
        for key, name in named.items():
            if name in SYSTEM_ACCOUNTS:
                raise cross_field(
                    key,
                    f"'{name}': an account of the operating system has this name; choose "
                    "another name",
                )
        return self

    @model_validator(mode="after")
    def _sizes_belong_to_services(self) -> Self:
        check_placement(self.placement)
        return self

    @model_validator(mode="after")
    def _secrets_are_the_sites(self) -> Self:
        for name, entries in self.secrets.items():
            if name in OWN_SECRETS:
                raise cross_field(
                    f"secrets.{name}",
                    "the stack itself creates a Secret with this name; choose another name",
                )
            if not entries:
                raise cross_field(
                    f"secrets.{name}",
                    "the Secret has no entries; add an entry, or remove the Secret",
                )
            for entry, text in entries.items():
                if problem := contents.problem(entry, text.get_secret_value()):
                    raise cross_field(f"secrets.{name}", f"'{entry}': {problem}")
        return self

    @model_validator(mode="after")
    def _secrets_have_their_entries(self) -> Self:
        for key, name in self._named_secrets().items():
            given = self.secrets.get(name)
            for entry in _ENTRIES.get(key.partition("[")[0], ()):
                if given is not None and entry not in given:
                    raise cross_field(
                        key,
                        f"Secret '{name}' does not have the entry '{entry}'; add this entry to "
                        f"secrets.{name}",
                    )
        return self

    @model_validator(mode="after")
    def _machines_are_known_to_the_jails_server(self) -> Self:
        # Cilium identifies Kubernetes nodes by itself. Other policies need the nodes' addresses.
        policies = self.network.policies
        if self.jail.server and not self.jail.server.machines and policies != "cilium":
            raise cross_field(
                "jail.server.machines",
                f"is required with network.policies '{policies}'; add the address ranges of the "
                "Kubernetes nodes, such as [10.0.0.0/16]",
            )
        return self

    @model_validator(mode="after")
    def _snapshots_fit_the_jail(self) -> Self:
        for kind in ("nfs", "host_path"):
            if self.snapshots and self.snapshots.jail and getattr(self.jail, kind):
                raise cross_field(
                    "snapshots.jail",
                    f"'{self.snapshots.jail}': jail.{kind} is not a CSI volume, so it has no "
                    "VolumeSnapshots; remove snapshots.jail, and use the storage's own snapshots",
                )
        return self

    @model_validator(mode="after")
    def _restores_from_one_store(self) -> Self:
        dump = self.accounting.backup.restore
        if self.backup and self.backup.restore and dump:
            raise cross_field(
                "accounting.backup.restore",
                f"'{dump}': cannot be combined with backup.restore, because the set "
                f"'{self.backup.restore}' has a dump of its own; keep only one of the two settings",
            )
        return self

    @model_validator(mode="after")
    def _volumes_fit_the_jails(self) -> Self:
        names = {f"jail-{volume.name}" for volume in self.jail.volumes}
        paths = {f"{JAIL}{volume.path}" for volume in self.jail.volumes}
        for index, nodeset in enumerate(self.nodesets):
            for volume in nodeset.volumes:
                key = f"nodesets[{index}].volumes"
                if volume.name in names:
                    raise cross_field(
                        key,
                        f"'{volume.name}': a volume in jail.volumes already has this name; "
                        "choose another name",
                    )
                if volume.path in paths:
                    raise cross_field(
                        key,
                        f"'{volume.path}': a volume in jail.volumes is already mounted at "
                        "this path; choose another path",
                    )
        return self

    @model_validator(mode="after")
    def _partitions_fit_nodesets(self) -> Self:
        known = {nodeset.name for nodeset in self.nodesets}
        pods_only = {nodeset.name for nodeset in self.nodesets if nodeset.pods_only}
        for index, partition in enumerate(self.partitions):
            if pods_only and partition.name == PODS_PARTITION:
                raise cross_field(
                    f"partitions[{index}].name",
                    f"'{PODS_PARTITION}': this name is reserved for the nodesets with 'pods_only'; "
                    "choose another name",
                )
            for name in partition.nodesets:
                if name not in known:
                    raise cross_field(
                        f"partitions[{index}].nodesets",
                        f"'{name}' is not a nodeset; {known_names(name, known)}",
                    )
                if name in pods_only:
                    raise cross_field(
                        f"partitions[{index}].nodesets",
                        f"'{name}': no jobs of users run on nodes with 'pods_only: true'; remove "
                        "the nodeset from the partition, or use 'shared_with_pods'",
                    )
        defaults = [partition.name for partition in self.partitions if partition.default]
        if len(defaults) > 1:
            raise cross_field(
                "partitions",
                f"partitions {' and '.join(defaults)} have 'default: true'; keep it in only one "
                "partition",
            )
        return self

    @model_validator(mode="after")
    def _groups_fit_users(self) -> Self:
        users = {user.name for user in self.users}
        own = {str(user.uid) for user in self.users}
        for gid in duplicates(str(group.gid) for group in self.groups):
            raise cross_field("groups", f"two groups have the gid {gid}; give each a unique gid")
        for index, group in enumerate(self.groups):
            if group.name in users:
                raise cross_field(
                    f"groups[{index}].name",
                    f"'{group.name}': a user's own group already has this name; choose another "
                    "group name",
                )
            if str(group.gid) in own:
                raise cross_field(
                    f"groups[{index}].gid",
                    f"{group.gid}: a user's own group already has this id; choose another gid",
                )
            for name in group.members:
                if name not in users:
                    raise cross_field(
                        f"groups[{index}].members",
                        f"'{name}' is not a user; {known_names(name, users)}",
                    )
        return self

    @model_validator(mode="after")
    def _partitions_fit_qos(self) -> Self:
        known = {qos.name for qos in self.accounting.qos} | {NORMAL}
        for index, partition in enumerate(self.partitions):
            # slurmctld does not start if the QOS of a partition is missing.
            if self.accounting.enabled and partition.qos and partition.qos not in known:
                raise cross_field(
                    f"partitions[{index}].qos",
                    f"'{partition.qos}' is not a QOS; add it to accounting.qos, or correct the "
                    f"name; {known_names(partition.qos, known)}",
                )
        return self

    @model_validator(mode="after")
    def _accounts_fit_users(self) -> Self:
        users = {user.name for user in self.users}
        if self.directory:
            # The directory may have users that the settings do not list, so any name may be valid.
            return self
        accounting = self.accounting
        named: dict[str, tuple[str, ...]] = {
            f"accounts[{i}].users[{j}].name": (user.name,)
            for i, account in enumerate(accounting.accounts)
            for j, user in enumerate(account.users)
        }
        named |= {"operators": accounting.operators, "administrators": accounting.administrators}
        for key, names in named.items():
            for name in names:
                if name not in users:
                    raise cross_field(
                        f"accounting.{key}", f"'{name}' is not a user; {known_names(name, users)}"
                    )
        return self

    @model_validator(mode="after")
    def _accounts_fit_partitions(self) -> Self:
        known = {partition.name for partition in self.queues()}
        for i, account in enumerate(self.accounting.accounts):
            for j, user in enumerate(account.users):
                for k, partition in enumerate(user.partitions):
                    if partition.name not in known:
                        raise cross_field(
                            f"accounting.accounts[{i}].users[{j}].partitions[{k}].name",
                            f"'{partition.name}' is not a partition; "
                            f"{known_names(partition.name, known)}",
                        )
        return self

    @model_validator(mode="after")
    def _partitions_fit_groups_and_preemption(self) -> Self:
        groups = {group.name for group in self.groups} | {user.name for user in self.users}
        for index, partition in enumerate(self.partitions):
            for name in partition.allow_groups:
                # The directory may have groups that the settings do not list.
                if name not in groups and not self.directory:
                    raise cross_field(
                        f"partitions[{index}].allow_groups",
                        f"'{name}' is not a group; {known_names(name, groups)}",
                    )
            if self.slurm.preemption.type == "none":
                for field in ("preempt_mode", "grace_time"):
                    value = getattr(partition, field)
                    if value is not None:
                        raise cross_field(
                            f"partitions[{index}].{field}",
                            f"{value}: has no effect, because slurm.preemption.type is 'none'; "
                            "set slurm.preemption.type to 'partition_prio', or remove this setting",
                        )
        return self

    @model_validator(mode="after")
    def _pods_have_users(self) -> Self:
        users = {user.name for user in self.users}
        for index, rule in enumerate(self.bridge.users if self.bridge else ()):
            key = f"bridge.users[{index}]"
            if rule.user in users:
                if rule.uid is not None:
                    raise cross_field(
                        f"{key}.uid",
                        f"{rule.uid}: the uid of '{rule.user}' is in 'users'; remove this setting",
                    )
            elif not self.directory:
                raise cross_field(
                    f"{key}.user", f"'{rule.user}' is not a user; {known_names(rule.user, users)}"
                )
            elif rule.uid is None:
                raise cross_field(
                    f"{key}.uid",
                    f"is required, because '{rule.user}' is a user of the directory; add the "
                    "user's uid",
                )
        return self

    @model_validator(mode="after")
    def _pods_have_nodes(self) -> Self:
        for index, nodeset in enumerate(self.nodesets):
            if nodeset.pods_setting and not self.bridge:
                raise cross_field(
                    f"nodesets[{index}].{nodeset.pods_setting}",
                    "true: has no effect without 'bridge'; add 'bridge', or remove this setting",
                )
        if self.bridge and not any(nodeset.runs_pods for nodeset in self.nodesets):
            raise cross_field(
                "bridge",
                "no node may run pods; set 'shared_with_pods: true' or 'pods_only: true' in a "
                "nodeset, or remove 'bridge'",
            )
        known = {partition.name for partition in self.queues()}
        wanted = self.bridge.partition if self.bridge else None
        if wanted is not None and wanted not in known:
            raise cross_field(
                "bridge.partition", f"'{wanted}' is not a partition; {known_names(wanted, known)}"
            )
        return self

    @model_validator(mode="after")
    def _ceiling_has_prices(self) -> Self:
        ceiling = self.on_demand.ceiling
        if ceiling is None:
            return self
        chosen = [(i, n.on_demand) for i, n in enumerate(self.nodesets) if n.on_demand]
        if not chosen:
            raise cross_field(
                "on_demand.ceiling",
                f"{ceiling:g}: has no effect, because no nodeset has nodes on demand; remove "
                "on_demand.ceiling",
            )
        for index, on_demand in chosen:
            if on_demand.price is None:
                raise cross_field(
                    f"nodesets[{index}].on_demand.price",
                    "is required with on_demand.ceiling; add the price of a node for an hour",
                )
            if on_demand.price > ceiling:
                raise cross_field(
                    f"nodesets[{index}].on_demand.price",
                    f"{on_demand.price:g}: is above on_demand.ceiling, {ceiling:g}, so no node of"
                    " this nodeset could start; raise on_demand.ceiling",
                )
        least = sum(each.largest_min() * (each.price or 0) for _, each in chosen)
        if least > ceiling:
            raise cross_field(
                "on_demand.ceiling",
                f"{ceiling:g}: the nodes that must be awake (on_demand.min, on_demand.schedule)"
                f" cost up to {least:g} an hour; raise on_demand.ceiling, or lower"
                " the numbers of nodes",
            )
        return self

    @model_validator(mode="after")
    def _topology_fits_nodesets(self) -> Self:
        nodes = {nodeset.name: self.nodes(nodeset) for nodeset in self.nodesets}
        static = {nodeset.name for nodeset in self.nodesets if nodeset.kind == "static"}
        owner = {node: name for name, names in nodes.items() for node in names}
        wired: dict[str, str] = {}
        topology = self.slurm.topology
        for group in topology.groups():
            key = f"slurm.topology.{'blocks' if topology.kind == 'block' else 'switches'}"
            for name in group.nodesets:
                if name not in nodes:
                    raise cross_field(key, f"'{name}' is not a nodeset; {known_names(name, nodes)}")
            for node in self.nodes_of(group):
                if node not in owner:
                    raise cross_field(
                        key,
                        f"'{node}' in switch or block '{group.name}' is not a node; "
                        f"{known_names(node, owner)}",
                    )
                # slurmctld 24.11 does not know a dynamic node before the node's first start. With
                # such a node in a block, slurmctld dies. With such a node below a switch, slurmctld
                # logs an error for each port of the switch.
                if owner[node] not in static:
                    raise cross_field(
                        key,
                        f"node '{node}' in '{group.name}' is dynamic, but a topology requires "
                        f"static nodes; set 'kind: static' in nodeset '{owner[node]}'",
                    )
                if node in wired:
                    raise cross_field(
                        key,
                        f"node '{node}' is in both '{wired[node]}' and '{group.name}'; keep the "
                        "node in only one of them",
                    )
                wired[node] = group.name
            # topology.conf leaves out a block without nodes, so slurmctld accepts such a block.
            number = len(self.nodes_of(group))
            if topology.block_sizes and 0 < number < topology.block_sizes[0]:
                raise cross_field(
                    key,
                    f"block '{group.name}' has {number} nodes: expected at least "
                    f"{topology.block_sizes[0]}, which is the first number in block_sizes; add "
                    "nodes to the block, or lower this number",
                )
        return self

    @model_validator(mode="after")
    def _labels_place_static_nodes(self) -> Self:
        if not self.slurm.topology.labels:
            return self
        for index, nodeset in enumerate(self.nodesets):
            # slurmctld 24.11 adds nodes to its topology only when it reads its configuration. A
            # dynamic node that registers later would get no jobs until slurmctld reads its
            # configuration again.
            if nodeset.kind != "static":
                raise cross_field(
                    f"nodesets[{index}].kind",
                    f"{nodeset.kind}: slurm.topology.labels requires static nodes; set 'kind: "
                    "static' in this nodeset",
                )
            # A node that has never been awake would be in no block. Slurm would give it no job, so
            # the node would never wake.
            if nodeset.on_demand and self.slurm.topology.kind == "block":
                raise cross_field(
                    f"nodesets[{index}].on_demand",
                    "a node on demand that was never awake has no labels, so it is in no block "
                    "and gets no jobs; set slurm.topology.kind to 'tree', or list the blocks in "
                    "slurm.topology.blocks",
                )
        return self

    @model_validator(mode="after")
    def _long_checks_fit(self) -> Self:
        for key, problem in self.long_checks.problems(self.nodesets):
            raise cross_field(f"long_checks.{key}", problem)
        named = {
            "partitions": (CHECKS_PARTITION, [partition.name for partition in self.partitions]),
            "users": (CHECKS_USER, [user.name for user in self.users]),
            "groups": (CHECKS_USER, [group.name for group in self.groups]),
            "accounting.accounts": (CHECKS_USER, [a.name for a in self.accounting.accounts]),
        }
        for key, (name, names) in named.items():
            if name in names:
                raise cross_field(
                    key, f"'{name}': this name is reserved for long checks; choose another name"
                )
        return self

    def installs_operators(self) -> bool:
        """Return whether the stack installs the charts that the GPUs of its nodesets require."""
        chosen = self.operators.install
        wanted = self.cluster.makes_machines if chosen is None else chosen
        return wanted and not {AMD, NVIDIA}.isdisjoint(self.gpu_vendors())

    def gpu_vendors(self) -> set[str]:
        """Return the domains of the vendors of all GPUs, such as `nvidia.com`."""
        return {nodeset.gpus.vendor() for nodeset in self.nodesets if nodeset.gpus}

    def gres_types(self) -> list[str]:
        """Return the value of GresTypes: all kinds of gres on the nodes."""
        gpus = [nodeset.gpus for nodeset in self.nodesets if nodeset.gpus]
        return ["gpu"] * bool(gpus) + ["shard"] * any(gpu.shards for gpu in gpus)

    def tres(self) -> list[str]:
        """Return the value of AccountingStorageTRES: GPUs, also by type, and shards.

        Slurm adds its own defaults, such as CPUs and memory.
        """
        found = {f"gres/{kind}" for kind in self.gres_types()}
        for nodeset in self.nodesets:
            if nodeset.gpus:
                found |= {f"gres/gpu:{kind}" for kind in nodeset.gpus.mig or (nodeset.gpus.type,)}
        return sorted(found)

    def dcgm_namespace(self) -> str | None:
        """Return the namespace where the stack's own Prometheus finds NVIDIA's DCGM exporters.

        Return None if Prometheus scrapes no DCGM exporter.
        """
        if self.monitoring.kind != "bundled":
            return None
        installed = self.installs_operators() and NVIDIA in self.gpu_vendors()
        return self.monitoring.dcgm_namespace or (GPU_NAMESPACE if installed else None)

    @model_validator(mode="after")
    def _checks_expect_present_gpus(self) -> Self:
        everywhere = expected_gpus(self.health.checks)
        for index, nodeset in enumerate(self.nodesets):
            key, wanted = f"nodesets[{index}].checks", expected_gpus(nodeset.checks)
            if wanted is None and nodeset.runs_gpu_count():
                key, wanted = "health.checks", everywhere
            if nodeset.gpus and wanted and wanted > nodeset.gpus.count:
                raise cross_field(
                    f"{key}.{GPU_COUNT}.count",
                    f"{wanted:g}: nodes of nodeset '{nodeset.name}' have only "
                    f"{nodeset.gpus.count} GPUs, so the check would drain these nodes; remove "
                    "'count' from the check",
                )
        return self

    @model_validator(mode="after")
    def _slices_are_of_all_gpus(self) -> Self:
        if not self.installs_operators():
            return self
        for index, gpus in enumerate(nodeset.gpus for nodeset in self.nodesets):
            for profile, slices in gpus.mig.items() if gpus else ():
                # A MIG layout applies to all GPUs of a machine.
                if gpus and slices % gpus.count:
                    raise cross_field(
                        f"nodesets[{index}].gpus.mig",
                        f"{profile}: {slices}: expected a multiple of gpus.count ({gpus.count}), "
                        "because all GPUs of a machine have the same slices; change this number",
                    )
        return self

    @model_validator(mode="after")
    def _fits_the_cluster(self) -> Self:
        for key, problem in self.cluster.problems(self):
            raise cross_field(key, problem)
        return self

    def warnings(self) -> Iterator[str]:
        """Yield the warnings that a deploy shows, as `key: problem; remedy`."""
        for key, problem in (
            *self.cluster.warnings(self),
            *self._account_warnings(),
            *self._partition_warnings(),
            *self._accounting_warnings(),
            *self.slurm.warnings(),
            *self._secret_warnings(),
            *self._image_warnings(),
            *self._log_warnings(),
            *warned(self),
        ):
            yield f"{PROJECT}:{key}: {problem}"

    def _partition_warnings(self) -> Iterator[tuple[str, str]]:
        """Warn about QOS that the settings do not create, and partitions where no job can start."""
        known = {qos.name for qos in self.accounting.qos} | {NORMAL}
        sizes = {nodeset.name: nodeset.replicas for nodeset in self.nodesets}
        for partition in self.partitions:
            key = f"partitions[{partition.name}]"
            for field in ("allow_qos", "deny_qos"):
                for name in getattr(partition, field):
                    if self.accounting.enabled and name.lower() not in known:
                        yield (
                            f"{key}.{field}",
                            f"'{name}' is not in accounting.qos; {known_names(name, known)}",
                        )
            nodes = sum(sizes.get(name, 0) for name in partition.nodesets)
            if partition.min_nodes and partition.min_nodes > nodes > 0:
                yield (
                    f"{key}.min_nodes",
                    (
                        f"{partition.min_nodes}: no job can start, because the partition's "
                        f"nodesets have only {nodes} nodes; lower min_nodes, or add nodes to "
                        "these nodesets"
                    ),
                )

    def _image_warnings(self) -> Iterator[tuple[str, str]]:
        for pattern in self.containers.allowed:
            name = pattern.rpartition("/")[2]
            if not {"*", ":", "@"} & {*name}:
                yield (
                    "containers.allowed",
                    (
                        f"'{pattern}': permits only the image with exactly this name; to permit "
                        f"all images whose names begin with it, write '{pattern}/*'"
                    ),
                )

    def _log_warnings(self) -> Iterator[tuple[str, str]]:
        logs = self.monitoring.logs
        if logs and endpoint_port(logs.endpoint) == _GRPC:
            yield (
                "monitoring.logs.endpoint",
                (
                    f"{logs.endpoint}: port {_GRPC} is usually for OTLP over gRPC, but the stack "
                    "sends OTLP over HTTP; use the port for OTLP over HTTP, usually 4318"
                ),
            )

    def _accounting_warnings(self) -> Iterator[tuple[str, str]]:
        """Warn about settings that Slurm ignores without accounting, or without preemption.

        `allow_accounts` is one of these settings: without accounting, Slurm does not compare this
        list with a job's account (source: `part_policy_valid_acct`, Slurm 24.11).
        """
        for qos in self.accounting.qos:
            kind = self.slurm.preemption.type
            if qos.preempt and kind != "qos":
                yield (
                    f"accounting.qos[{qos.name}].preempt",
                    (
                        f"{', '.join(qos.preempt)}: has no effect, because slurm.preemption.type "
                        f"is '{kind}'; set slurm.preemption.type to 'qos', or remove 'preempt'"
                    ),
                )
        if self.accounting.enabled:
            return
        given: dict[str, object] = {
            f"slurm.priority.{name}": getattr(self.slurm.priority, name)
            for name in ("association", "fairshare", "qos")
        }
        given["slurm.preemption.type"] = self.slurm.preemption.type == "qos" and "qos"
        for partition in self.partitions:
            given |= {
                f"partitions[{partition.name}].{name}": getattr(partition, name)
                for name in ("qos", "allow_qos", "deny_qos", "allow_accounts")
            }
        for key, value in given.items():
            if value:
                shown = ", ".join(value) if isinstance(value, tuple) else value
                yield (
                    key,
                    (
                        f"{shown}: has no effect, because accounting.enabled is false; remove "
                        "this setting, or set accounting.enabled to true"
                    ),
                )

    def _secret_warnings(self) -> Iterator[tuple[str, str]]:
        """Warn about probably misspelled names of Secrets, and credentials that users can read."""
        for key, name in self._named_secrets().items():
            close = difflib.get_close_matches(name, self.secrets, n=1, cutoff=0.75)
            likely = close or self._unused_secrets(key)
            if name not in self.secrets and likely:
                yield (
                    key,
                    (
                        f"'{name}' is not a Secret in the setting 'secrets'; did you mean "
                        f"'{likely[0]}'?"
                    ),
                )
        environments = {
            "containers.environment": self.containers.environment,
            **{
                f"nodesets[{nodeset.name}].pod.environment": nodeset.pod.environment
                for nodeset in self.nodesets
            },
        }
        for key, variables in environments.items():
            for variable in variables:
                if _CREDENTIAL.search(variable):
                    yield (
                        f"{key}.{variable}",
                        (
                            "this name suggests a credential, but all users can read the "
                            "variable's value; remove the variable"
                        ),
                    )

    def _unused_secrets(self, key: str) -> list[str]:
        """Return the names of unused Secrets with the entries that the setting `key` requires."""
        volumes = (self.jail.volumes, *(nodeset.volumes for nodeset in self.nodesets))
        used = {volume.secret for group in volumes for volume in group}
        used |= {*self._named_secrets().values()}
        entries = {*_ENTRIES.get(key.partition("[")[0], ())}
        unused = (name for name in sorted(self.secrets) if name not in used)
        return [name for name in unused if entries and entries <= self.secrets[name].keys()]

    def _named_secrets(self) -> dict[str, str]:
        """Return the name of each Secret that a setting names, by the setting's key."""
        accounting, bundled = self.accounting, self.monitoring.bundled
        found = {
            "accounting.external.password_secret": accounting.external
            and accounting.external.password_secret,
            "accounting.backup.password_secret": accounting.backup.password_secret,
            "accounting.backup.s3.secret": accounting.backup.s3 and accounting.backup.s3.secret,
            "backup.password_secret": self.backup and self.backup.password_secret,
            "backup.s3.secret": self.backup and self.backup.s3 and self.backup.s3.secret,
            "monitoring.bundled.alertmanager_secret": bundled.alertmanager_secret,
            "monitoring.logs.headers_secret": self.monitoring.logs
            and self.monitoring.logs.headers_secret,
            "directory.password_secret": self.directory and self.directory.password_secret,
            "reconciler.replace_secret": self.reconciler.replace_secret,
            "containers.credentials_secret": self.containers.credentials_secret,
            "jail.csi.node_stage_secret": self.jail.csi and self.jail.csi.node_stage_secret,
            "jail.csi.node_publish_secret": self.jail.csi and self.jail.csi.node_publish_secret,
            **{f"pull_secrets[{i}]": name for i, name in enumerate(self.pull_secrets)},
        }
        return {key: name for key, name in found.items() if name}

    def _account_warnings(self) -> Iterator[tuple[str, str]]:
        """Warn about accounts that the settings do not create; sacctmgr may have created them."""
        accounting = self.accounting
        known = {ROOT, accounting.default_account, *(each.name for each in accounting.accounts)}
        if not accounting.enabled:
            return
        for partition in self.partitions:
            for name in partition.allow_accounts:
                if name not in known:
                    yield (
                        f"partitions[{partition.name}].allow_accounts",
                        (
                            f"account '{name}' is not in accounting.accounts, so its jobs start "
                            "only if an administrator created it with sacctmgr; add it to "
                            f"accounting.accounts, or correct the name; {known_names(name, known)}"
                        ),
                    )

    def enforced(self) -> tuple[str, ...]:
        """Return the rules of accounting that Slurm enforces."""
        # Users who exist only in the directory have no association. If Slurm enforced associations,
        # it would refuse their jobs.
        chosen = "enforce" in self.accounting.model_fields_set
        return self.accounting.enforce if chosen or not self.directory else ()

    def restored(self) -> str | None:
        """Return what the deploy restores the accounting from: a dump or a set."""
        return self.accounting.backup.restore or (self.backup.restore if self.backup else None)

    def nodes(self, nodeset: Nodeset) -> tuple[str, ...]:
        return node_names(nodeset.name, nodeset.replicas)

    def nodes_of(self, group: Switch | Block) -> tuple[str, ...]:
        """Return the names of the nodes of a leaf switch or a block."""
        whole = (nodeset for nodeset in self.nodesets if nodeset.name in group.nodesets)
        return (*hosts_of(group), *(node for nodeset in whole for node in self.nodes(nodeset)))

    def queues(self) -> tuple[Partition, ...]:
        """Return the partitions of users, or one over all nodesets if the settings list none."""
        if self.partitions or not self.nodesets:
            return self.partitions
        everything = tuple(nodeset.name for nodeset in self.nodesets if not nodeset.pods_only)
        return (Partition(name="main", nodesets=everything, default=True),) if everything else ()
