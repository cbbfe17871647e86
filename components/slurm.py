"""The Slurm layer, composed of its components."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from components import admission, ciliumpolicies, network, pods, snapshots
from components import conventions as c
from components import users as people
from components.accounting import Accounting, AccountingArgs
from components.accounts import Accounts, AccountsArgs
from components.auth import AuthKey, AuthKeyArgs, auth
from components.backup import Backup, BackupArgs, Restore
from components.checks import LongChecks, LongChecksArgs
from components.cluster.interface import Cluster, NodeClass
from components.configuration import SlurmConfig, SlurmConfigArgs
from components.controller import Controller, ControllerArgs
from components.database import Database, DatabaseArgs
from components.directory import Directory, DirectoryArgs, People
from components.exporter import Exporter, ExporterArgs
from components.jail import Jail, JailArgs
from components.jwt import JwtKey, JwtKeyArgs
from components.login import Login, LoginArgs
from components.logs import Logs, LogsArgs
from components.machines import Machines, MachinesArgs
from components.monitoring import Monitoring, MonitoringArgs
from components.nodeset import Nodeset, NodesetArgs
from components.nodessh import NodeSsh, NodeSshArgs
from components.reconciler import Reconciler, ReconcilerArgs
from components.rest import Rest, RestArgs
from components.settings import BundledDatabase, Settings
from components.slurmconf import (
    accounting_files,
    backup_environment,
    backup_files,
    config_files,
    config_mark,
    container_files,
    node_checks,
    node_conf,
    script_files,
    wanted_accounts,
    wanted_long_checks,
    wanted_nodes,
)
from components.userimages import UserImages, UserImagesArgs

_POD_SECURITY = {
    # baseline would refuse the mounts of slurmd and sshd, and node-exporter's host access.
    "pod-security.kubernetes.io/enforce": "privileged",
    "pod-security.kubernetes.io/audit": "baseline",
}
"""Pods that the namespace admits, whatever the cluster's default is, and those that it logs."""


@dataclass(frozen=True)
class SlurmArgs:
    settings: Settings
    root: Path
    """Folder that paths in the settings are relative to."""
    cluster: Cluster
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before any of Slurm's, such as a network."""


class Slurm(pulumi.ComponentResource):
    """Namespace, network, keys, users, jail, accounting, controller, nodesets, login and the rest.

    `opts` contains its Kubernetes provider.
    """

    namespace: pulumi.Output[str]
    login_host_key: pulumi.Output[str]
    report: pulumi.Output[str]
    """State of the nodes after the last deploy that changed anything for them."""

    def __init__(self, name: str, args: SlurmArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(c.type_token("slurm", "Slurm"), name, None, opts)
        settings = args.settings
        child = pulumi.ResourceOptions(parent=self)
        namespace = k8s.core.v1.Namespace(
            "namespace",
            metadata={"name": settings.namespace, "labels": _POD_SECURITY},
            # Deleting the namespace deletes its claims. It comes first, so a refusal of its
            # deletion comes before any other change.
            opts=pulumi.ResourceOptions(
                parent=self, protect=settings.protect_data, depends_on=list(args.after)
            ),
        )
        self.namespace = namespace.metadata.name
        images = pods.Images(settings.registry, settings.pull_secrets)
        hosts_domain = c.hosts_domain(settings.namespace, settings.cluster.domain)
        k8s.core.v1.Service(
            "hosts",
            metadata={"name": c.HOSTS, "namespace": self.namespace},
            spec={
                "clusterIP": "None",
                # A pod's name must resolve from the start of the pod.
                "publishNotReadyAddresses": True,
                "selector": pods.LABELS,
            },
            opts=child,
        )
        guard = network.guard(settings, images)
        key = AuthKey("auth", AuthKeyArgs(self.namespace, settings.auth.rotations), child)
        authentication = auth(settings.auth, key.secret)
        jwt = JwtKey("jwt", JwtKeyArgs(self.namespace), child)
        users = people.Users(
            "users",
            people.UsersArgs(self.namespace, settings.users, args.root, settings.groups),
            child,
        )
        directory_people = People()
        if settings.directory:
            directory_args = DirectoryArgs(self.namespace, settings.directory, args.root)
            directory_people = Directory("directory", directory_args, child).people
        jail = Jail(
            "jail",
            JailArgs(
                namespace=self.namespace,
                settings=settings.jail,
                images=images,
                accounts=users.accounts,
                passwd=people.passwd(settings.users),
                protect=settings.protect_data,
                files=args.cluster.storage.jail,
            ),
            child,
        )
        # The jail refuses another volume before any change for that volume.
        agreed = pulumi.ResourceOptions(parent=self, depends_on=[jail.origin])
        kinds = settings.network.kinds()
        if kinds:
            rules = network.rules(settings)
            network.Network(
                "network",
                network.NetworkArgs(
                    self.namespace,
                    network.policies(rules) if "kubernetes" in kinds else {},
                    ciliumpolicies.policies(rules) if "cilium" in kinds else {},
                ),
                agreed,
            )
        snapshots.install(settings, self.namespace, images, agreed)
        configuration_mark = config_mark(settings, args.root)
        configuration = SlurmConfig(
            "config",
            SlurmConfigArgs(
                namespace=self.namespace,
                files=config_files(settings, args.root),
                node_confs={
                    nodeset.name: node_conf(nodeset)
                    for nodeset in settings.nodesets
                    if nodeset.kind == "dynamic"
                },
                scripts=script_files(settings, args.root),
                images=images,
                auth=authentication,
            ),
            child,
        )
        accounting: tuple[pulumi.Output[pods.Spec], ...] = ()
        if settings.accounting.enabled:
            database, backup = settings.accounting.server(), settings.accounting.backup
            password_secret: pulumi.Input[str] = (
                Database(
                    "database",
                    DatabaseArgs(self.namespace, database, images, settings.protect_data),
                    child,
                ).password_secret
                if isinstance(database, BundledDatabase)
                else database.password_secret
            )
            restore = Restore()
            if backup.enabled:
                restore = Backup(
                    "backup",
                    BackupArgs(
                        namespace=self.namespace,
                        settings=backup,
                        images=images,
                        files=backup_files(settings, args.root),
                        environment=backup_environment(settings),
                        password_secret=password_secret,
                        protect=settings.protect_data,
                    ),
                    child,
                ).restore
            slurmdbd = Accounting(
                "accounting",
                AccountingArgs(
                    namespace=self.namespace,
                    images=images,
                    auth=authentication,
                    people=directory_people,
                    jwt_secret=jwt.secret,
                    accounts=users.accounts,
                    files=configuration.once_proven(accounting_files(settings, args.root)),
                    password_secret=password_secret,
                    address=c.accounting_address(settings.namespace, settings.cluster.domain),
                    archive=settings.accounting.archive,
                    protect=settings.protect_data,
                    restore=restore,
                ),
                child,
            )
            accounting = (slurmdbd.alias,)
        controller = Controller(
            "controller",
            ControllerArgs(
                namespace=self.namespace,
                settings=settings.controller,
                shared=args.cluster.storage.shared,
                images=images,
                auth=authentication,
                people=directory_people,
                jwt_secret=jwt.secret,
                accounts=users.accounts,
                config=configuration.proven,
                config_mark=configuration_mark,
                address=c.controller_address(settings.namespace, settings.cluster.domain),
                accounting=accounting,
                hosts_domain=hosts_domain,
                protect=settings.protect_data,
            ),
            child,
        )
        daemons = (controller.alias, *accounting)
        if settings.accounting.enabled:
            Accounts(
                "accounts",
                AccountsArgs(
                    namespace=self.namespace,
                    images=images,
                    auth=authentication,
                    people=directory_people,
                    accounts=users.accounts,
                    wanted=configuration.once_proven(wanted_accounts(settings)),
                    conf_server=controller.server,
                ),
                child,
            )
        reached = tuple(nodeset.name for nodeset in settings.nodesets)
        node_ssh = NodeSsh(
            "node-ssh",
            NodeSshArgs(self.namespace, reached if settings.login.ssh_to_nodes else ()),
            child,
        )
        user_images = UserImages(
            "user-images",
            UserImagesArgs(
                namespace=self.namespace,
                files=container_files(settings.containers),
                credentials_secret=settings.containers.credentials_secret,
            ),
            child,
        )
        machines = {
            nodeset.name: args.cluster.node_classes.get(nodeset.name, NodeClass())
            for nodeset in settings.nodesets
        }
        nodesets = {
            nodeset.name: Nodeset(
                f"nodeset-{nodeset.name}",
                NodesetArgs(
                    namespace=self.namespace,
                    settings=nodeset,
                    machines=machines[nodeset.name],
                    images=images,
                    auth=authentication,
                    people=directory_people,
                    guard=guard,
                    accounts=users.accounts,
                    scripts=configuration.scripts,
                    checks=configuration.once_proven(node_checks(nodeset, settings)),
                    node_ssh=node_ssh.secret,
                    user_images=user_images.volume,
                    jail_claim=jail.claim,
                    submounts=settings.jail.volumes,
                    conf_server=controller.server,
                    confinement_required=settings.slurm.cgroups == "required",
                    daemons=daemons,
                    hosts_domain=hosts_domain,
                ),
                child,
            )
            for nodeset in settings.nodesets
        }
        login = Login(
            "login",
            LoginArgs(
                namespace=self.namespace,
                settings=settings.login,
                annotations=args.cluster.login_annotations,
                images=images,
                auth=authentication,
                people=directory_people,
                guard=guard,
                accounts=users.accounts,
                keys=users.keys,
                node_ssh=node_ssh.secret,
                user_images=user_images.volume,
                jail_claim=jail.claim,
                submounts=[volume for volume in settings.jail.volumes if volume.login],
                conf_server=controller.server,
                daemons=daemons,
                hosts_domain=hosts_domain,
            ),
            child,
        )
        rest = Rest(
            "rest",
            RestArgs(
                namespace=self.namespace,
                settings=settings.rest,
                images=images,
                people=directory_people,
                accounts=users.accounts,
                config=controller.config,
                daemons=daemons,
                accounting=settings.accounting.enabled,
            ),
            child,
        )
        if settings.monitoring.exporter.enabled:
            Exporter(
                "exporter",
                ExporterArgs(
                    namespace=self.namespace,
                    settings=settings.monitoring.exporter,
                    images=images,
                    auth=authentication,
                    people=directory_people,
                    accounts=users.accounts,
                    config=controller.config,
                    jail_claim=jail.claim,
                    submounts=settings.jail.volumes,
                    daemons=(controller.alias,),
                    private_data=settings.slurm.private_data,
                ),
                child,
            )
        if settings.monitoring.kind != "none":
            Machines("machines", MachinesArgs(self.namespace, images), child)
            Monitoring("monitoring", MonitoringArgs(self.namespace, settings, images), child)
        if settings.monitoring.logs:
            sent = LogsArgs(
                self.namespace,
                settings.monitoring.logs,
                images,
                settings.cluster_name,
                args.root,
            )
            Logs("logs", sent, child)
        reconciler = Reconciler(
            "reconciler",
            ReconcilerArgs(
                namespace=self.namespace,
                images=images,
                jwt_secret=jwt.secret,
                rest_url=rest.url,
                settings=settings.reconciler,
                wanted=configuration.once_proven(wanted_nodes(settings)),
                machines=[
                    admission.own_labels({**machines[nodeset.name].labels, **nodeset.node_selector})
                    for nodeset in settings.nodesets
                ],
                marks=[
                    controller.config_mark,
                    *(made.mark for _, made in sorted(nodesets.items())),
                ],
            ),
            child,
        )
        if settings.long_checks.checks:
            LongChecks(
                "longchecks",
                LongChecksArgs(
                    namespace=self.namespace,
                    settings=settings.long_checks,
                    images=images,
                    wanted=wanted_long_checks(settings),
                    jwt_secret=jwt.secret,
                    jail_claim=jail.claim,
                    rest_url=rest.url,
                    protect=settings.protect_data,
                ),
                child,
            )
        self.login_host_key = login.host_key
        self.report = reconciler.report
        self.register_outputs(
            {
                "namespace": self.namespace,
                "loginHostKey": self.login_host_key,
                "report": self.report,
            }
        )
