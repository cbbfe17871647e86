"""slurmctld, its state, and the configuration that it sends to all nodes and clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity.auth import Conf, daemon_security, pod_security
from components.outputs import once_known
from components.settings import Controller as ControllerSettings
from components.site import Site
from components.slurm.placeholder import Placeholder, PlaceholderArgs
from components.storage.store import Restore

_CONFIG_DEADLINE = 300
"""Seconds within which slurmctld must load changed configuration files. The kubelet needs about 90
of these seconds to deliver the files to the pod."""


@dataclass(frozen=True)
class ControllerArgs:
    site: Site
    settings: ControllerSettings
    shared: pulumi.Input[str] | None
    """StorageClass for the state if two controllers share it. The class must support ReadWriteMany.
    None means the cluster's default class."""
    jwt_secret: pulumi.Input[str]
    config: pulumi.Input[Mapping[str, str]]
    """Slurm's configuration files by name."""
    config_digest: str
    """Digest of these files. The running slurmctld reports the digest of the files that it has
    loaded, so the deploy can compare the two."""
    labels_define_topology: bool
    address: str
    """DNS name of slurmctld for daemons and clients."""
    accounting: Sequence[pulumi.Input[pods.Spec]]
    """Line of /etc/hosts for slurmdbd, which slurmctld needs at its first start. The list is empty
    without accounting."""
    hosts_domain: str
    protect: bool
    restore: Restore
    """Containers and volumes that restore the queue before slurmctld starts."""


class Controller(pulumi.ComponentResource):
    """slurmctld, which is ready as soon as it responds, and a standby slurmctld if the settings
    request one."""

    server: pulumi.Output[str]
    """Address of slurmctld, in the format of the option `--conf-server`. Pulumi knows this output
    only after slurmctld is ready."""
    alias: pulumi.Output[pods.Spec]
    """Line of /etc/hosts for slurmctld's Service. Pulumi knows this output only after slurmctld is
    ready."""
    config: pulumi.Output[str]
    """Name of the ConfigMap with Slurm's configuration. Pulumi knows this output only after
    slurmctld is ready."""
    config_digest: pulumi.Output[str]
    """Digest of Slurm's configuration. Pulumi knows this output only after slurmctld has loaded
    this configuration."""

    def __init__(
        self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("controller", "Controller"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        config = pods.config_map(
            f"{name}-config", c.SLURM_CONFIG, args.site.namespace, args.config, child
        )
        state = pods.claim(
            f"{name}-state",
            c.STATE_CLAIM,
            args.site.namespace,
            pods.Volume(
                "ReadWriteMany" if args.settings.standby else "ReadWriteOnce",
                args.settings.state_size,
                args.settings.storage_class or (args.shared if args.settings.standby else None),
            ),
            pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        topology = _topology(name, args, child)
        pod = _pod(args, config.metadata.name, state.metadata.name, topology)
        slurmctld = _deployment(f"{name}-slurmctld", args, pod, child)
        service = k8s.core.v1.Service(
            f"{name}-service",
            metadata={
                "name": c.CONTROLLER,
                "namespace": args.site.namespace,
                # Do not wait for the Service's pods. One pod is already ready, because the Service
                # depends on the Deployment. A standby does not become ready, so Pulumi would wait
                # until the timeout.
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
                # Use a value of the Deployment, so that Pulumi creates the placeholder after the
                # Deployment: slurmctld's pod must be scheduled first.
                PlaceholderArgs(slurmctld.metadata.namespace, args.site, c.CONTROLLER, pod),
                child,
            )
        # Derive this output from a value of the Service. Pulumi then creates the resources that use
        # the output after slurmctld is ready, and deletes them before slurmctld.
        self.server = once_known(c.conf_server(args.address), service.metadata.name)
        self.alias = service.spec.cluster_ip.apply(lambda ip: pods.alias(ip, args.address))
        self.config = once_known(config.metadata.name, self.server)
        self.config_digest = once_known(args.config_digest, in_force.metadata)
        self.register_outputs({"server": self.server, "alias": self.alias, "config": self.config})


def _topology(
    name: str, args: ControllerArgs, opts: pulumi.ResourceOptions
) -> Sequence[pods.Mounted]:
    """Return the volumes that slurmctld needs if labels define the topology. Otherwise, return
    none."""
    if not args.labels_define_topology:
        return ()
    written = k8s.core.v1.ConfigMap(
        f"{name}-topology",
        # Create the ConfigMap without content, because only the reconciler writes it.
        metadata={"name": c.TOPOLOGY_CONFIG, "namespace": args.site.namespace},
        opts=opts,
    )
    volume = pods.config_volume("topology", written.metadata.name)
    return (
        pods.mounted(volume, c.TOPOLOGY, read_only=True),
        pods.mounted(pods.disk_volume("run"), c.CONTROLLER_RUN),
    )


def _deployment(
    resource_name: str, args: ControllerArgs, pod: pods.Spec, opts: pulumi.ResourceOptions
) -> k8s.apps.v1.Deployment:
    """Create a Deployment, because a StatefulSet would not replace a pod on a lost Kubernetes node.

    A lease (images/controller) prevents two controllers from writing the same state.
    """
    return k8s.apps.v1.Deployment(
        resource_name,
        metadata={
            "name": c.CONTROLLER,
            "namespace": args.site.namespace,
            # Let the deploy wait for only one pod: a standby becomes ready only when it takes over.
            "annotations": {"pulumi.com/waitFor": "jsonpath={.status.readyReplicas}=1"},
        },
        # Give the pods no checksum of the configuration, because slurmctld loads a changed
        # configuration without a restart.
        spec=pods.workload(
            c.CONTROLLER, pod, **{**pods.ALONE, "replicas": 2 if args.settings.standby else 1}
        ),
        opts=opts,
    )


def _pod(
    args: ControllerArgs,
    config: pulumi.Input[str],
    state: pulumi.Input[str],
    topology: Sequence[pods.Mounted],
) -> pods.Spec:
    # Move to another Kubernetes node as soon as this one is lost. Kubernetes' default is to wait
    # for five minutes.
    at_once = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    lost = [
        {"key": f"node.kubernetes.io/{reason}", **at_once}
        for reason in ("not-ready", "unreachable")
    ]
    mounted = [
        pods.mounted(pods.config_volume("config", config), c.SLURM_ETC, read_only=True),
        pods.mounted(pods.claim_volume("state", state), c.CONTROLLER_SPOOL),
        pods.mounted(pods.secret_volume("jwt", args.jwt_secret), c.JWT_KEY_DIR, read_only=True),
        *topology,
    ]
    return {
        **args.site.pod(c.CONTROLLER, *lost),
        # Resolve slurmctld's own name to this pod. Its probes cannot use the Service, which has no
        # endpoint until the probes report that slurmctld is ready.
        **pods.named(args.hosts_domain, pods.alias("127.0.0.1", args.address), *args.accounting),
        # Set the host name to the value of SlurmctldHost in slurm.conf: on a host with another
        # name, slurmctld does not start.
        "hostname": c.CONTROLLER_HOST,
        "subdomain": c.HOSTS,
        **daemon_security(args.site.auth),
        # Both this pod and the placeholder have anti-affinity. If only the placeholder had it,
        # kube-scheduler 1.34 would retry this pod only minutes after the placeholder's eviction.
        **pods.apart_from(c.CONTROLLER, c.PLACEHOLDER),
        "initContainers": [
            *args.site.sidecars(Conf(mount=pods.mount("config", c.SLURM_ETC, read_only=True))),
            *args.restore.containers,
        ],
        "containers": [_slurmctld(args, mounted), _reload(args, topology)],
        "volumes": [*args.site.volumes(), *args.restore.volumes, *pods.volumes(mounted)],
    }


def _reload(args: ControllerArgs, topology: Sequence[pods.Mounted]) -> pods.Spec:
    return {
        "name": "reload",
        **pods.image("controller", args.site.images),
        "command": [f"{c.PROGRAMS}/reload"],
        **pods.security(user=c.SLURM_ID),
        **pods.requests("10m", "16Mi"),
        "volumeMounts": [
            *args.site.auth.client_mounts(),
            pods.mount("config", c.SLURM_ETC, read_only=True),
            pods.users_mount(),
            *pods.mounts(topology),
        ],
    }


def _config_in_force_job(args: ControllerArgs) -> pods.Spec:
    """Return a Job that makes the deploy wait until slurmctld runs with the configuration."""
    return {
        "backoffLimit": 3,
        "activeDeadlineSeconds": _CONFIG_DEADLINE,
        "template": pods.template(
            c.CONFIG,
            {
                **args.site.pod(c.CONFIG),
                **pod_security(args.site.auth),
                "restartPolicy": "Never",
                "initContainers": args.site.auth.sidecars(
                    args.site.images, Conf(server=c.conf_server(args.address))
                ),
                "containers": [
                    {
                        "name": c.CONFIG_IN_FORCE,
                        **pods.image("controller", args.site.images),
                        "command": [f"{c.PROGRAMS}/await-config", args.config_digest],
                        "env": [
                            {"name": "SLURM_CONF_SERVER", "value": c.conf_server(args.address)}
                        ],
                        **pods.security(user=c.SLURM_ID),
                        **pods.requests("10m", "16Mi"),
                        "volumeMounts": args.site.auth.client_mounts(),
                    }
                ],
                "volumes": args.site.auth.volumes(),
            },
        ),
    }


def _slurmctld(args: ControllerArgs, mounted: Sequence[pods.Mounted]) -> pods.Spec:
    return {
        "name": "slurmctld",
        **pods.image("controller", args.site.images),
        **pods.security(user=c.SLURM_ID),
        **args.site.requests(c.CONTROLLER, "100m", "64Mi"),
        "env": [
            pods.field("POD_UID", "metadata.uid"),
            *args.site.auth.daemon_environment(),
        ],
        "ports": [{"name": "slurmctld", "containerPort": c.SLURMCTLD_PORT}],
        # Use the port for the startup probe. A standby has no open port, so the startup probe keeps
        # failing, and the other probes, which start processes, do not run.
        **pods.probes(pods.command("scontrol", "ping"), pods.open_port(c.SLURMCTLD_PORT)),
        # Use a query instead of `scontrol ping`, which succeeds even if slurmctld is in a deadlock.
        # One such deadlock exists in version 24.11.5 without accounting: slurmctld hangs forever
        # when a user cancels another user's job with `scancel --ctld` or through HTTP. A restart
        # also ends a deadlock in which slurmdbd and slurmctld wait for each other: see
        # docs/accounting.md.
        "livenessProbe": {
            **pods.command("sinfo", "--noheader", "--format=%n"),
            "periodSeconds": 30,
            "timeoutSeconds": 30,
            "failureThreshold": 3,
        },
        "volumeMounts": [*args.site.daemon_mounts(), *pods.mounts(mounted)],
    }
