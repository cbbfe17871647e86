"""The Slurm layer, put together from its components."""

from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components import users as people
from components.auth import AuthKey, AuthKeyArgs, auth
from components.configuration import SlurmConfig, SlurmConfigArgs
from components.controller import Controller, ControllerArgs
from components.jail import Jail, JailArgs
from components.jwt import JwtKey, JwtKeyArgs
from components.login import Login, LoginArgs
from components.nodeset import Nodeset, NodesetArgs
from components.reconciler import Reconciler, ReconcilerArgs
from components.rest import Rest, RestArgs
from components.settings import Settings
from components.slurmconf import config_files, config_mark, node_conf, script_files


@dataclass(frozen=True)
class SlurmArgs:
    settings: Settings
    root: Path
    """Folder that paths in the settings are relative to."""


class Slurm(pulumi.ComponentResource):
    """Namespace, keys, users, jail, controller, nodesets, login, REST and reconciler.

    Its Kubernetes provider comes by `opts`.
    """

    namespace: pulumi.Output[str]
    login_host_key: pulumi.Output[str]

    def __init__(self, name: str, args: SlurmArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(c.type_token("slurm", "Slurm"), name, None, opts)
        settings = args.settings
        child = pulumi.ResourceOptions(parent=self)
        namespace = k8s.core.v1.Namespace(
            "namespace",
            metadata={"name": settings.namespace},
            # A namespace takes its claims with it; and it comes first, before anything has changed.
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect_data),
        )
        self.namespace = namespace.metadata.name
        images = pods.Images(settings.registry, settings.pull_secrets)
        hosts_domain = c.hosts_domain(settings.namespace, settings.cluster.domain)
        k8s.core.v1.Service(
            "hosts",
            metadata={"name": c.HOSTS, "namespace": self.namespace},
            spec={
                "clusterIP": "None",
                # A name must lead somewhere from the moment that its pod begins.
                "publishNotReadyAddresses": True,
                "selector": pods.LABELS,
            },
            opts=child,
        )
        key = AuthKey("auth", AuthKeyArgs(self.namespace, settings.auth.rotations), child)
        how = auth(settings.auth, key.secret)
        jwt = JwtKey("jwt", JwtKeyArgs(self.namespace), child)
        users = people.Users(
            "users",
            people.UsersArgs(self.namespace, settings.users, args.root, settings.groups),
            child,
        )
        jail = Jail(
            "jail",
            JailArgs(
                namespace=self.namespace,
                settings=settings.jail,
                images=images,
                accounts=users.accounts,
                passwd=people.passwd(settings.users),
                protect=settings.protect_data,
            ),
            child,
        )
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
                auth=how,
            ),
            child,
        )
        controller = Controller(
            "controller",
            ControllerArgs(
                namespace=self.namespace,
                settings=settings.controller,
                images=images,
                auth=how,
                jwt_secret=jwt.secret,
                accounts=users.accounts,
                config=configuration.proven,
                config_mark=config_mark(settings, args.root),
                address=c.controller_address(settings.namespace, settings.cluster.domain),
                hosts_domain=hosts_domain,
                protect=settings.protect_data,
            ),
            child,
        )
        for nodeset in settings.nodesets:
            Nodeset(
                f"nodeset-{nodeset.name}",
                NodesetArgs(
                    namespace=self.namespace,
                    settings=nodeset,
                    images=images,
                    auth=how,
                    accounts=users.accounts,
                    scripts=configuration.scripts,
                    jail_claim=jail.claim,
                    conf_server=controller.server,
                    hosts_domain=hosts_domain,
                ),
                child,
            )
        login = Login(
            "login",
            LoginArgs(
                namespace=self.namespace,
                settings=settings.login,
                images=images,
                auth=how,
                accounts=users.accounts,
                keys=users.keys,
                jail_claim=jail.claim,
                conf_server=controller.server,
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
                accounts=users.accounts,
                config=controller.config,
            ),
            child,
        )
        Reconciler(
            "reconciler",
            ReconcilerArgs(
                namespace=self.namespace,
                images=images,
                jwt_secret=jwt.secret,
                rest_url=rest.url,
                nodesets={nodeset.name: nodeset.replicas for nodeset in settings.nodesets},
            ),
            child,
        )
        self.login_host_key = login.host_key
        self.register_outputs({"namespace": self.namespace, "loginHostKey": self.login_host_key})
