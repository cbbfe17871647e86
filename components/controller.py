"""slurmctld, its state, and the configuration that it hands to every node and client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.auth import Auth, Conf, daemon_security, pod_security
from components.directory import People
from components.placeholder import Placeholder, PlaceholderArgs
from components.settings import Controller as ControllerSettings

_CONFIG_DEADLINE = 300
"""Seconds until slurmctld must run with a new configuration; the kubelet takes up to about 90."""


@dataclass(frozen=True)
class ControllerArgs:
    namespace: pulumi.Input[str]
    settings: ControllerSettings
    shared: pulumi.Input[str] | None
    """Storage class with ReadWriteMany, for two controllers with one state; None: the default."""
    images: pods.Images
    auth: Auth
    people: People
    jwt_secret: pulumi.Input[str]
    accounts: pulumi.Input[str]
    """ConfigMap with passwd and group."""
    config: pulumi.Input[Mapping[str, str]]
    """Slurm's configuration files by name."""
    config_mark: str
    """Word by which slurmctld shows that it runs with these files."""
    address: str
    """DNS name of slurmctld for daemons and clients."""
    accounting: Sequence[pulumi.Input[pods.Spec]]
    """Line of /etc/hosts for slurmdbd, if there is one; slurmctld's first start needs slurmdbd."""
    hosts_domain: str
    protect: bool


class Controller(pulumi.ComponentResource):
    """slurmctld, ready when it answers, and a standby if the settings want one."""

    server: pulumi.Output[str]
    """`host:port` for `--conf-server`, known once slurmctld answers."""
    alias: pulumi.Output[pods.Spec]
    """Line of /etc/hosts for the Service, known once slurmctld answers."""
    config: pulumi.Output[str]
    """Name of the ConfigMap with the configuration, known once slurmctld answers."""
    config_mark: pulumi.Output[str]
    """Word that identifies the configuration, known once slurmctld runs with it."""

    def __init__(
        self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("controller", "Controller"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        config = k8s.core.v1.ConfigMap(
            f"{name}-config",
            metadata={"name": c.SLURM_CONFIG, "namespace": args.namespace},
            data=args.config,
            opts=child,
        )
        state = pods.claim(
            f"{name}-state",
            c.STATE_CLAIM,
            args.namespace,
            pods.Volume(
                "ReadWriteMany" if args.settings.standby else "ReadWriteOnce",
                args.settings.state_size,
                args.settings.storage_class or (args.shared if args.settings.standby else None),
            ),
            pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        pod = _pod(args, config.metadata.name, state.metadata.name)
        slurmctld = k8s.apps.v1.Deployment(
            f"{name}-slurmctld",
            metadata={
                "name": c.CONTROLLER,
                "namespace": args.namespace,
                # A standby is not ready until it takes over.
                "annotations": {"pulumi.com/waitFor": "jsonpath={.status.readyReplicas}=1"},
            },
            # A Deployment, because a StatefulSet does not replace a pod of a lost node. A lease
            # (images/controller) keeps two controllers from writing the same state.
            spec={
                "replicas": 2 if args.settings.standby else 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": pods.labels(c.CONTROLLER)},
                "template": {
                    # No digest of the configuration: slurmctld reloads a new one without a restart.
                    "metadata": {"labels": pods.labels(c.CONTROLLER)},
                    "spec": pod,
                },
            },
            opts=child,
        )
        service = k8s.core.v1.Service(
            f"{name}-service",
            metadata={
                "name": c.CONTROLLER,
                "namespace": args.namespace,
                # One pod is ready by now: the Service depends on the Deployment. A standby never is
                # ready, and Pulumi would wait for it until it times out.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec={
                "selector": slurmctld.spec.selector.match_labels,
                "ports": pods.service_port("slurmctld", c.SLURMCTLD_PORT),
            },
            opts=child,
        )
        in_force = k8s.batch.v1.Job(
            f"{name}-{c.CONFIG_IN_FORCE}",
            metadata={"namespace": service.metadata.namespace, "labels": pods.labels(c.CONFIG)},
            spec=_config_in_force_job(args),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[config]),
        )
        if not args.settings.standby:
            Placeholder(
                f"{name}-placeholder",
                # Derived from the Deployment, whose pod must get its node first.
                PlaceholderArgs(slurmctld.metadata.namespace, args.images, c.CONTROLLER, pod),
                child,
            )
        # Derived from the Service, so consumers are created after slurmctld answers and deleted
        # before it.
        self.server = service.metadata.name.apply(lambda _: c.conf_server(args.address))
        self.alias = service.spec.cluster_ip.apply(lambda ip: pods.alias(ip, args.address))
        self.config = pulumi.Output.all(config.metadata.name, self.server).apply(
            lambda values: str(values[0])
        )
        self.config_mark = in_force.metadata.apply(lambda _: args.config_mark)
        self.register_outputs({"server": self.server, "alias": self.alias, "config": self.config})


def _pod(args: ControllerArgs, config: pulumi.Input[str], state: pulumi.Input[str]) -> pods.Spec:
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    return {
        **pods.pod_defaults(args.images),
        # slurmctld's own clients must not use its Service, which leads nowhere until
        # they have reported that slurmctld is ready.
        **pods.named(args.hosts_domain, pods.alias("127.0.0.1", args.address), *args.accounting),
        # slurmctld starts only on a host with the name in SlurmctldHost.
        "hostname": c.CONTROLLER_HOST,
        "subdomain": c.HOSTS,
        **daemon_security(args.auth),
        # Both pods have anti-affinity. If only the placeholder had it, kube-scheduler 1.34 would
        # retry slurmctld's pod minutes after the placeholder has made room.
        **pods.apart_from(c.CONTROLLER, c.PLACEHOLDER),
        # Move as soon as the node is known to be lost, and not five minutes later.
        "tolerations": [
            {"key": f"node.kubernetes.io/{reason}", **lost}
            for reason in ("not-ready", "unreachable")
        ],
        "initContainers": [
            *args.auth.sidecars(
                args.images, Conf(mount=pods.mount("config", c.SLURM_ETC, read_only=True))
            ),
            *args.people.sidecars(args.images),
        ],
        "containers": [_slurmctld(args), _reload(args)],
        "volumes": [
            *args.auth.volumes(),
            *args.people.volumes(),
            pods.config_volume("config", config),
            pods.claim_volume("state", state),
            pods.secret_volume("jwt", args.jwt_secret),
            pods.users_volume(args.accounts),
        ],
    }


def _reload(args: ControllerArgs) -> pods.Spec:
    return {
        "name": "reload",
        **pods.image("controller", args.images),
        "command": [f"{c.SPANK_DIR}/reload"],
        **pods.security(user=c.SLURM_ID),
        **pods.requests("10m", "16Mi"),
        "volumeMounts": [
            *args.auth.client_mounts(),
            pods.mount("config", c.SLURM_ETC, read_only=True),
            pods.users_mount(),
        ],
    }


def _config_in_force_job(args: ControllerArgs) -> pods.Spec:
    """Return a Job that ends when slurmctld runs with the configuration. The deploy awaits it."""
    return {
        "backoffLimit": 3,
        "activeDeadlineSeconds": _CONFIG_DEADLINE,
        "template": {
            "metadata": {"labels": pods.labels(c.CONFIG)},
            "spec": {
                **pods.pod_defaults(args.images),
                **pod_security(args.auth),
                "restartPolicy": "Never",
                "initContainers": args.auth.sidecars(
                    args.images, Conf(server=c.conf_server(args.address))
                ),
                "containers": [
                    {
                        "name": c.CONFIG_IN_FORCE,
                        **pods.image("controller", args.images),
                        "command": [f"{c.SPANK_DIR}/await-config", args.config_mark],
                        "env": [
                            {"name": "SLURM_CONF_SERVER", "value": c.conf_server(args.address)}
                        ],
                        **pods.security(user=c.SLURM_ID),
                        **pods.requests("10m", "16Mi"),
                        "volumeMounts": args.auth.client_mounts(),
                    }
                ],
                "volumes": args.auth.volumes(),
            },
        },
    }


def _slurmctld(args: ControllerArgs) -> pods.Spec:
    return {
        "name": "slurmctld",
        **pods.image("controller", args.images),
        **pods.security(user=c.SLURM_ID),
        **pods.requests("100m", "64Mi"),
        "env": [
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            *args.auth.daemon_environment(),
        ],
        "ports": [{"name": "slurmctld", "containerPort": c.SLURMCTLD_PORT}],
        # A standby has no open port, so its startup probe does not pass, and no other probe runs.
        **pods.answers(pods.command("scontrol", "ping"), pods.open_port(c.SLURMCTLD_PORT)),
        # A slurmctld in a deadlock still answers `scontrol ping`. (24.11.5 without accounting locks
        # up for good when a user cancels another user's job by `scancel --ctld` or by HTTP.)
        "livenessProbe": {
            **pods.command("sinfo", "--noheader", "--format=%n"),
            "periodSeconds": 30,
            "timeoutSeconds": 30,
            "failureThreshold": 3,
        },
        "volumeMounts": [
            *args.auth.daemon_mounts(),
            *args.people.mounts(),
            pods.mount("config", c.SLURM_ETC, read_only=True),
            pods.mount("state", c.CONTROLLER_SPOOL),
            pods.mount("jwt", c.JWT_KEY_DIR, read_only=True),
            pods.users_mount(),
        ],
    }
