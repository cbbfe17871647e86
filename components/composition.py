"""Create the Slurm layer: everything that a stack runs in its namespace, from one component for
each part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.accounting.accounts import Accounts, AccountsArgs
from components.accounting.database import Database, DatabaseArgs
from components.accounting.dumps import Dumps, DumpsArgs
from components.accounting.slurmdbd import Accounting, AccountingArgs
from components.cluster.interface import Cluster, NodeClass
from components.health import admission
from components.health.longchecks import LongChecks, LongChecksArgs
from components.health.reconciler import Reconciler, ReconcilerArgs
from components.identity import secrets
from components.identity.auth import AuthKey, AuthKeyArgs, auth
from components.identity.bridgekey import BridgeKey, BridgeKeyArgs
from components.identity.directory import Directory, DirectoryArgs, Sssd
from components.identity.jwt import JwtKey, JwtKeyArgs
from components.identity.nodessh import NodeSsh, NodeSshArgs
from components.identity.users import Users, UsersArgs, passwd
from components.monitoring.exporter import Exporter, ExporterArgs
from components.monitoring.logs import Logs, LogsArgs
from components.monitoring.node_exporter import NodeExporter, NodeExporterArgs
from components.monitoring.prometheus import Monitoring, MonitoringArgs
from components.network import ciliumpolicies, flows, guard, policies
from components.outputs import once_known
from components.settings import BundledDatabase, Settings
from components.site import MountedJail, Site, Slurmctld
from components.slurm.bridge import Bridge, BridgeArgs
from components.slurm.configuration import SlurmConfig, SlurmConfigArgs
from components.slurm.controller import Controller, ControllerArgs
from components.slurm.login import Login, LoginArgs
from components.slurm.nodeset import Nodeset, NodesetArgs
from components.slurm.ondemand import OnDemand, OnDemandArgs
from components.slurm.rest import Rest, RestArgs
from components.slurm.userimages import UserImages, UserImagesArgs
from components.slurmconf import (
    accounting_files,
    backup_environment,
    backup_files,
    bridge_address,
    bridge_rules,
    config_digest,
    config_files,
    container_files,
    cost_on_demand,
    dump_environment,
    dump_files,
    node_checks,
    node_conf,
    script_files,
    wanted_accounts,
    wanted_bridge,
    wanted_long_checks,
    wanted_nodes,
    wanted_on_demand,
)
from components.storage import snapshots
from components.storage.backup import Backup, BackupArgs, BackupStore, BackupStoreArgs
from components.storage.jail import Jail, JailArgs
from components.storage.store import Restore

_POD_SECURITY = {
    # Use `privileged`, because the level `baseline` would refuse the mounts of slurmd and sshd, and
    # the access of node-exporter to its machine.
    "pod-security.kubernetes.io/enforce": "privileged",
    "pod-security.kubernetes.io/audit": "baseline",
}
"""Pod Security labels. They decide which pods the namespace admits, and which pods the API server
logs. They override the cluster's default."""


@dataclass(frozen=True)
class SlurmArgs:
    settings: Settings
    root: Path
    """Folder of the project. Paths in the settings are relative to this folder."""
    cluster: Cluster
    secrets: Mapping[str, Mapping[str, pulumi.Input[str]]]
    """Values of the Secrets in the settings."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before Slurm's resources, such as a network."""
    prefix: str = ""
    """Prefix of all resources' names in Pulumi. It is different for each `Slurm` of a program."""

    def named(self, name: str) -> str:
        """Return a resource's name in Pulumi."""
        return f"{self.prefix}{name}"


class Slurm(pulumi.ComponentResource):
    """The whole Slurm layer: namespace, network, users, jail, accounting, controller, nodesets, …

    `opts` contains the Kubernetes provider.
    """

    namespace: pulumi.Output[str]
    login: Login
    report: pulumi.Output[str]
    """Report on the state of the nodes, written by the last deploy that affected nodes."""

    def __init__(self, name: str, args: SlurmArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(c.type_token("slurm", "Slurm"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        namespace = _namespace(args, child)
        # Create the Secrets before all pods, because pods with a Secret start only if it exists.
        made = secrets.create(args.named("secret"), args.secrets, namespace, child)
        self.namespace = once_known(namespace, *made)
        identity = _identity(args, self.namespace, child)
        store = _backup_store(args, identity.site, child)
        jail = _jail(args, identity, store, child)
        # Create the other resources after the ConfigMap that records the jail's source. A deploy
        # that would change the jail's volume fails at this ConfigMap. Before it fails, this deploy
        # must not change anything else.
        after_origin = pulumi.ResourceOptions(parent=self, depends_on=[jail.origin])
        _network(args, self.namespace, after_origin)
        snapshots.install(args.settings, identity.site, after_origin)
        control = _control(args, identity, store, child)
        _backup(args, store, control, jail, child)
        nodes = _nodes(args, identity, control, jail, child)
        self.login = nodes.login
        self.report = _health(args, identity, control, nodes, jail, child)
        _monitoring(args, identity.site, control, jail, child)
        self.register_outputs(
            {
                "namespace": self.namespace,
                "loginHostKey": self.login.host_key,
                "report": self.report,
            }
        )


def _namespace(args: SlurmArgs, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    settings = args.settings
    namespace = k8s.core.v1.Namespace(
        args.named("namespace"),
        metadata={"name": settings.namespace, "labels": _POD_SECURITY},
        # Protect the namespace, because its deletion would also delete its PersistentVolumeClaims.
        # The namespace is the first resource, so Pulumi refuses such a deletion before it changes
        # anything else.
        opts=pulumi.ResourceOptions(
            parent=opts.parent, protect=settings.protect_data, depends_on=list(args.after)
        ),
    )
    name: pulumi.Output[str] = namespace.metadata.name
    k8s.core.v1.Service(
        args.named("hosts"),
        metadata={"name": c.HOSTS, "namespace": name},
        spec={
            "clusterIP": "None",
            # Publish the names of pods that are not ready yet, because Slurm needs a pod's name
            # before the pod is ready.
            "publishNotReadyAddresses": True,
            "selector": pods.LABELS,
        },
        opts=opts,
    )
    return name


# --- Users and keys ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Identity:
    site: Site
    jwt_secret: pulumi.Output[str]
    public_keys: pulumi.Output[str]
    """ConfigMap with each user's public keys."""
    node_ssh: pulumi.Output[str]
    """Secret of a `NodeSsh`."""
    user_images: pods.Mounted
    """Volume with the site's settings for container images that users run."""
    bridge_key: pods.Mounted | None
    """Volume of a `BridgeKey`, if the stack has a bridge."""


def _identity(
    args: SlurmArgs, namespace: pulumi.Output[str], opts: pulumi.ResourceOptions
) -> _Identity:
    settings = args.settings
    key = AuthKey(args.named("auth"), AuthKeyArgs(namespace, settings.auth.rotations), opts)
    users = Users(
        args.named("users"), UsersArgs(namespace, settings.users, args.root, settings.groups), opts
    )
    reached = tuple(nodeset.name for nodeset in settings.nodesets)
    return _Identity(
        site=Site(
            namespace=namespace,
            images=pods.Images(settings.registry, settings.pull_secrets),
            auth=auth(settings.auth, key.secret),
            sssd=_sssd(args, namespace, opts),
            users=users.accounts,
            placement=settings.placement,
            named=args.named,
        ),
        jwt_secret=JwtKey(args.named("jwt"), JwtKeyArgs(namespace), opts).secret,
        public_keys=users.keys,
        node_ssh=NodeSsh(
            args.named("node-ssh"),
            NodeSshArgs(namespace, reached if settings.login.ssh_to_nodes else ()),
            opts,
        ).secret,
        user_images=UserImages(
            args.named("user-images"),
            UserImagesArgs(
                namespace=namespace,
                files=container_files(settings.containers),
                credentials_secret=settings.containers.credentials_secret,
            ),
            opts,
        ).mounted,
        bridge_key=BridgeKey(args.named("bridge-key"), BridgeKeyArgs(namespace), opts).mounted
        if settings.bridge
        else None,
    )


def _sssd(args: SlurmArgs, namespace: pulumi.Output[str], opts: pulumi.ResourceOptions) -> Sssd:
    if not args.settings.directory:
        return Sssd()
    wanted = DirectoryArgs(namespace, args.settings.directory, args.root)
    return Directory(args.named("directory"), wanted, opts).sssd


# --- Jail and network ----------------------------------------------------------------------------


def _backup_store(args: SlurmArgs, site: Site, opts: pulumi.ResourceOptions) -> BackupStore | None:
    settings = args.settings
    if settings.backup is None:
        return None
    return BackupStore(
        args.named("backup-store"),
        BackupStoreArgs(
            site=site,
            settings=settings.backup,
            files=backup_files(settings, args.root),
            environment=backup_environment(settings),
            protect=settings.protect_data,
        ),
        opts,
    )


def _backup(
    args: SlurmArgs,
    store: BackupStore | None,
    control: "_Control",
    jail: Jail,
    opts: pulumi.ResourceOptions,
) -> None:
    settings = args.settings
    if store is None:
        return
    Backup(
        args.named("backup-sets"),
        BackupArgs(
            store=store,
            jail=MountedJail(jail.claim, settings.jail.volumes),
            password_secret=control.database_password,
            standby=settings.controller.standby,
        ),
        opts,
    )


def _jail(
    args: SlurmArgs,
    identity: _Identity,
    store: BackupStore | None,
    opts: pulumi.ResourceOptions,
) -> Jail:
    settings = args.settings
    return Jail(
        args.named("jail"),
        JailArgs(
            site=identity.site,
            settings=settings.jail,
            passwd=passwd(settings.users),
            protect=settings.protect_data,
            files=args.cluster.storage.jail,
            restore=store.restores_jail(settings.jail.volumes) if store else Restore(),
        ),
        opts,
    )


def _network(args: SlurmArgs, namespace: pulumi.Output[str], opts: pulumi.ResourceOptions) -> None:
    settings = args.settings
    kinds = settings.network.kinds()
    if not kinds:
        return
    rules = flows.rules(settings)
    policies.Network(
        args.named("network"),
        policies.NetworkArgs(
            namespace,
            policies.policies(rules) if "kubernetes" in kinds else {},
            ciliumpolicies.policies(rules) if "cilium" in kinds else {},
        ),
        opts,
    )


# --- Configuration, accounting and slurmctld -----------------------------------------------------


@dataclass(frozen=True)
class _Control:
    configuration: SlurmConfig
    slurmctld: Slurmctld
    config_digest: pulumi.Output[str]
    """Digest of the configuration. Pulumi knows this output only after slurmctld uses this
    configuration."""
    database_password: pulumi.Input[str] | None
    """Secret with the password of the database's user; None without accounting."""


def _control(
    args: SlurmArgs,
    identity: _Identity,
    store: BackupStore | None,
    opts: pulumi.ResourceOptions,
) -> _Control:
    settings, site = args.settings, identity.site
    configuration = SlurmConfig(
        args.named("config"),
        SlurmConfigArgs(
            site=site,
            files=config_files(settings, args.root),
            node_confs={
                nodeset.name: node_conf(nodeset)
                for nodeset in settings.nodesets
                if nodeset.kind == "dynamic"
            },
            scripts=script_files(settings, args.root),
        ),
        opts,
    )
    password = _database_password(args, site, opts) if settings.accounting.enabled else None
    slurmdbd = (
        [_accounting(args, identity, configuration, password, store, opts).alias]
        if password is not None
        else []
    )
    hosts_domain = c.hosts_domain(settings.namespace, settings.cluster.domain)
    controller = Controller(
        args.named("controller"),
        ControllerArgs(
            site=site,
            settings=settings.controller,
            shared=args.cluster.storage.shared,
            jwt_secret=identity.jwt_secret,
            config=configuration.proven,
            config_digest=config_digest(settings, args.root),
            labels_define_topology=bool(settings.slurm.topology.labels),
            address=c.controller_address(settings.namespace, settings.cluster.domain),
            accounting=slurmdbd,
            hosts_domain=hosts_domain,
            protect=settings.protect_data,
            restore=store.restores_state() if store else Restore(),
        ),
        opts,
    )
    slurmctld = Slurmctld(
        server=controller.server,
        config=controller.config,
        alias=controller.alias,
        slurmdbd=slurmdbd,
        hosts_domain=hosts_domain,
    )
    if settings.accounting.enabled:
        wanted = configuration.once_proven(wanted_accounts(settings))
        restored = settings.restored()
        Accounts(args.named("accounts"), AccountsArgs(site, slurmctld, wanted, restored), opts)
    return _Control(configuration, slurmctld, controller.config_digest, password)


def _database_password(
    args: SlurmArgs, site: Site, opts: pulumi.ResourceOptions
) -> pulumi.Input[str]:
    """Create the stack's own database unless another one is in use. Return the Secret with the
    password of its user."""
    database = args.settings.accounting.server()
    if not isinstance(database, BundledDatabase):
        return database.password_secret
    wanted = DatabaseArgs(site, database, args.settings.protect_data)
    return Database(args.named("database"), wanted, opts).password_secret


def _accounting(
    args: SlurmArgs,
    identity: _Identity,
    configuration: SlurmConfig,
    password_secret: pulumi.Input[str],
    store: BackupStore | None,
    opts: pulumi.ResourceOptions,
) -> Accounting:
    settings, site = args.settings, identity.site
    dumps = settings.accounting.backup
    restore = store.restores_accounting(password_secret) if store else Restore()
    if dumps.enabled:
        made = Dumps(
            args.named("backup"),
            DumpsArgs(
                site=site,
                settings=dumps,
                files=dump_files(settings, args.root),
                environment=dump_environment(settings),
                password_secret=password_secret,
                protect=settings.protect_data,
            ),
            opts,
        )
        restore = made.restore if dumps.restore else restore
    return Accounting(
        args.named("accounting"),
        AccountingArgs(
            site=site,
            jwt_secret=identity.jwt_secret,
            files=configuration.once_proven(accounting_files(settings, args.root)),
            password_secret=password_secret,
            address=c.accounting_address(settings.namespace, settings.cluster.domain),
            archive=settings.accounting.archive,
            protect=settings.protect_data,
            restore=restore,
        ),
        opts,
    )


# --- Nodesets, login nodes and REST --------------------------------------------------------------


@dataclass(frozen=True)
class _Nodes:
    digests: tuple[pulumi.Output[str], ...]
    """Digests of the nodesets' pod templates."""
    labels: tuple[Mapping[str, str], ...]
    """For each nodeset, the labels of its Kubernetes nodes that begin with `slurmstack.dev/`."""
    login: Login
    rest_url: pulumi.Output[str]


def _nodes(
    args: SlurmArgs,
    identity: _Identity,
    control: _Control,
    jail: Jail,
    opts: pulumi.ResourceOptions,
) -> _Nodes:
    settings, site = args.settings, identity.site
    packet_filter = guard.guard(settings, site.images)
    classes = {
        nodeset.name: args.cluster.node_classes.get(nodeset.name, NodeClass())
        for nodeset in settings.nodesets
    }
    nodesets = {
        nodeset.name: Nodeset(
            args.named(f"nodeset-{nodeset.name}"),
            NodesetArgs(
                site=site,
                slurmctld=control.slurmctld,
                settings=nodeset,
                machines=classes[nodeset.name],
                guard=packet_filter,
                scripts=control.configuration.scripts,
                checks=control.configuration.once_proven(node_checks(nodeset, settings)),
                node_ssh=identity.node_ssh,
                user_images=identity.user_images,
                jail=MountedJail(jail.claim, settings.jail.volumes),
                bridge=bridge_address(settings),
                bridge_key=identity.bridge_key if nodeset.runs_pods else None,
                confinement_required=settings.slurm.cgroups == "required",
            ),
            opts,
        )
        for nodeset in settings.nodesets
    }
    rest = Rest(
        args.named("rest"),
        RestArgs(site, control.slurmctld, settings.rest, settings.accounting.enabled),
        opts,
    )
    _bridge(args, identity, control, rest.url, opts)
    on_demand = [nodeset.name for nodeset in settings.nodesets if nodeset.on_demand]
    wanted = control.configuration.once_proven(wanted_on_demand(settings))
    OnDemand(
        args.named("ondemand"),
        OnDemandArgs(
            site, identity.jwt_secret, rest.url, wanted, on_demand, cost_on_demand(settings)
        ),
        opts,
    )
    return _Nodes(
        digests=tuple(made.digest for _, made in sorted(nodesets.items())),
        labels=tuple(
            admission.own_labels({**classes[nodeset.name].labels, **nodeset.node_selector})
            for nodeset in settings.nodesets
        ),
        login=_login(args, identity, control, jail, opts),
        rest_url=rest.url,
    )


def _bridge(
    args: SlurmArgs,
    identity: _Identity,
    control: _Control,
    rest_url: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    settings = args.settings
    if settings.bridge is None or identity.bridge_key is None:
        return
    Bridge(
        args.named("bridge"),
        BridgeArgs(
            site=identity.site,
            jwt_secret=identity.jwt_secret,
            key=identity.bridge_key,
            rest_url=rest_url,
            settings=settings.bridge,
            rules=bridge_rules(settings),
            stack_namespace=settings.namespace,
            wanted=control.configuration.once_proven(wanted_bridge(settings)),
        ),
        opts,
    )


def _login(
    args: SlurmArgs,
    identity: _Identity,
    control: _Control,
    jail: Jail,
    opts: pulumi.ResourceOptions,
) -> Login:
    settings, site = args.settings, identity.site
    submounts = [volume for volume in settings.jail.volumes if volume.login]
    return Login(
        args.named("login"),
        LoginArgs(
            site=site,
            slurmctld=control.slurmctld,
            settings=settings.login,
            annotations=args.cluster.login_annotations,
            guard=guard.guard(settings, site.images),
            keys=identity.public_keys,
            node_ssh=identity.node_ssh,
            user_images=identity.user_images,
            jail=MountedJail(jail.claim, submounts),
        ),
        opts,
    )


# --- Health and monitoring -----------------------------------------------------------------------


def _health(
    args: SlurmArgs,
    identity: _Identity,
    control: _Control,
    nodes: _Nodes,
    jail: Jail,
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str]:
    """Create the long checks and the reconciler. Return the reconciler's report on the nodes after
    the deploy."""
    settings, site = args.settings, identity.site
    if settings.long_checks.checks:
        LongChecks(
            args.named("longchecks"),
            LongChecksArgs(
                site=site,
                settings=settings.long_checks,
                wanted=wanted_long_checks(settings),
                jwt_secret=identity.jwt_secret,
                jail=MountedJail(jail.claim, settings.jail.volumes),
                rest_url=nodes.rest_url,
                protect=settings.protect_data,
            ),
            opts,
        )
    return Reconciler(
        args.named("reconciler"),
        ReconcilerArgs(
            site=site,
            jwt_secret=identity.jwt_secret,
            rest_url=nodes.rest_url,
            settings=settings.reconciler,
            writes_topology=bool(settings.slurm.topology.labels),
            keeps_machines=any(nodeset.keep_machine for nodeset in settings.nodesets),
            wanted=control.configuration.once_proven(wanted_nodes(settings)),
            machines=nodes.labels,
            digests=[control.config_digest, *nodes.digests],
        ),
        opts,
    ).report


def _monitoring(
    args: SlurmArgs, site: Site, control: _Control, jail: Jail, opts: pulumi.ResourceOptions
) -> None:
    settings = args.settings
    if settings.monitoring.exporter.enabled:
        Exporter(
            args.named("exporter"),
            ExporterArgs(
                site=site,
                slurmctld=control.slurmctld,
                settings=settings.monitoring.exporter,
                jail=MountedJail(jail.claim, settings.jail.volumes),
                private_data=settings.slurm.private_data,
            ),
            opts,
        )
    if settings.monitoring.kind != "none":
        NodeExporter(args.named("machines"), NodeExporterArgs(site), opts)
        Monitoring(args.named("monitoring"), MonitoringArgs(site, settings), opts)
    if settings.monitoring.logs:
        wanted = LogsArgs(site, settings.monitoring.logs, settings.cluster_name, args.root)
        Logs(args.named("logs"), wanted, opts)
