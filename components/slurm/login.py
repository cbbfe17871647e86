"""Login nodes: pods with sshd, where each session has the jail as its root."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from components import conventions as c
from components import pods
from components.identity import nodessh
from components.identity.auth import Conf, pod_security
from components.identity.hostkeys import host_key, public_host_key
from components.settings import Login as LoginSettings
from components.site import MountedJail, Site, Slurmctld
from components.slurm.loginconf import login_files
from components.storage.volumes import shows

SSHD_CAPABILITIES = (
    # sshd switches to the user who logs in, sets the owner of the terminal, and sends signals to
    # the session.
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
    # The entrypoint mounts the jail, and drops SYS_ADMIN before sshd runs.
    "SETPCAP",
    "SYS_ADMIN",
)
_AFFINITY = 86_400
"""Seconds for which all connections of a client reach the same login node. This is the maximum that
Kubernetes accepts."""
_STOP_MARGIN = 15
"""Seconds after `drain_grace` within which a pod must stop."""
_START = 600
"""Seconds within which a pod must pull its images and become ready."""


@dataclass(frozen=True)
class LoginArgs:
    site: Site
    slurmctld: Slurmctld
    settings: LoginSettings
    annotations: Mapping[str, pulumi.Input[str]]
    """Annotations of the Service for the cloud's load balancer."""
    guard: Sequence[pods.Spec]
    """Init containers that run before all others."""
    keys: pulumi.Input[str]
    """ConfigMap with each user's public keys."""
    node_ssh: pulumi.Input[str]
    """Secret of a `NodeSsh`."""
    user_images: pods.Mounted
    """Volume with the site's settings for container images that users run."""
    jail: MountedJail


class Login(pulumi.ComponentResource):
    """Login nodes with sshd, their Service, and one host key for all of them. The key stays the
    same when login nodes are replaced.

    The definitions of the pods and the Service contain only the settings for the number of nodes,
    for network access and for the shutdown. All other settings are in files. If a file changes,
    running nodes read it again.
    """

    host_key: pulumi.Output[str]
    """Public host key, for known_hosts."""
    address: pulumi.Output[str | None]
    """Name or address of the load balancer, to which clients connect. It is None with NodePort,
    because clients may then connect to any Kubernetes node. It is also None with ClusterIP, because
    then only pods in the cluster can connect."""
    port: pulumi.Output[int]
    """TCP port that clients connect to."""

    def __init__(
        self, name: str, args: LoginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("login", "Login"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # 64 letters and digits have more random bits than the key. Do not use RandomBytes, for the
        # reason given in components/identity/auth.py.
        seed = random.RandomPassword(f"{name}-host-key-seed", length=64, special=False, opts=child)
        key = pods.secret(
            f"{name}-host-key",
            c.HOST_KEY_SECRET,
            args.site.namespace,
            {"host_key": seed.result.apply(host_key)},
            child,
        )
        config = pods.config_map(
            f"{name}-config", c.LOGIN_CONFIG, args.site.namespace, login_files(args.settings), child
        )
        sshd = k8s.apps.v1.StatefulSet(
            f"{name}-sshd",
            metadata={"name": c.LOGIN, "namespace": args.site.namespace},
            spec=pods.workload(
                c.LOGIN,
                _pod(args, config.metadata.name, key.metadata.name),
                replicas=args.settings.replicas,
                serviceName=c.HOSTS,
                # With OrderedReady, Kubernetes does not replace a pod that never became ready, so
                # a correct edit could not repair a wrong edit.
                podManagementPolicy="Parallel",
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(
                    update=f"{_patience(args.settings)}s", delete=f"{_patience(args.settings)}s"
                ),
            ),
        )
        annotations = {"annotations": args.annotations} if args.annotations else {}
        service = k8s.core.v1.Service(
            f"{name}-service",
            metadata={"name": c.LOGIN, "namespace": args.site.namespace, **annotations},
            spec={
                **_way_in(args.settings),
                "selector": sshd.spec.selector.match_labels,
                # All sessions from one client address use the same login node, so users find their
                # tmux sessions again.
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": _AFFINITY}},
            },
            opts=child,
        )
        self.host_key = pulumi.Output.unsecret(seed.result.apply(public_host_key))
        self.address = service.status.apply(partial(_address, args.settings.service))
        self.port = service.spec.ports.apply(partial(_port, args.settings.service))
        self.register_outputs(
            {"hostKey": self.host_key, "address": self.address, "port": self.port}
        )


def _pod(args: LoginArgs, config: pulumi.Input[str], host_key: pulumi.Input[str]) -> pods.Spec:
    conf = Conf(server=args.slurmctld.server, follow=True)
    brings_conf = args.site.auth.brings_conf
    mounted = [
        nodessh.mounted(args.node_ssh),
        args.user_images,
        pods.mounted(pods.disk_volume("tmp"), c.LOGIN_TMP),
        pods.mounted(pods.config_volume("keys", args.keys), c.AUTHORIZED_KEYS, read_only=True),
        pods.mounted(pods.config_volume("settings", config), c.LOGIN_SETTINGS, read_only=True),
        pods.mounted(pods.secret_volume("host-key", host_key), c.HOST_KEY, read_only=True),
    ]
    return {
        **args.site.pod(c.LOGIN),
        **args.slurmctld.names(),
        **pod_security(args.site.auth, pods.PING, pods.NO_ORPHANED_MEMORY),
        **pods.spread(c.LOGIN),
        "terminationGracePeriodSeconds": args.settings.drain_grace + _STOP_MARGIN,
        "initContainers": [
            *args.guard,
            *args.site.sidecars(conf),
            *([] if brings_conf else [_sackd(args)]),
        ],
        "containers": [_sshd(args, mounted)],
        "volumes": [
            *args.site.volumes(),
            *args.jail.volumes(),
            *([] if brings_conf else [pods.disk_volume("slurm-run")]),
            *pods.volumes(mounted),
        ],
    }


def _patience(settings: LoginSettings) -> int:
    """Return how many seconds it takes at most to replace all login nodes, one after the other."""
    return settings.replicas * (settings.drain_grace + _STOP_MARGIN + _START)


def _way_in(settings: LoginSettings) -> pods.Spec:
    """Return the Service's type, its port, and the allowed addresses."""
    node_port = {"nodePort": settings.node_port} if settings.node_port else {}
    ranges = sorted(settings.source_ranges)
    return {
        "type": settings.service,
        "ports": [{"name": "ssh", "port": c.SSH_PORT, "targetPort": c.SSHD_PORT, **node_port}],
        # With Local, sshd sees the address of each client. So it can slow down only those clients
        # that fail to log in. Do not use Local with NodePort, because the port would then be open
        # only on machines that run a login node.
        **({"externalTrafficPolicy": "Local"} if settings.service == "LoadBalancer" else {}),
        **({"loadBalancerSourceRanges": ranges} if ranges else {}),
    }


def _address(service: str, status: k8s.core.v1.outputs.ServiceStatus | None) -> str | None:
    """Return the load balancer's name or address; None if the Service's status has neither."""
    ingress = status and status.load_balancer and status.load_balancer.ingress
    if service == "LoadBalancer" and ingress:
        return str(ingress[0].hostname or ingress[0].ip)
    return None


def _port(service: str, ports: Sequence[k8s.core.v1.outputs.ServicePort]) -> int:
    """Return the port to which users connect. With NodePort, this is the Service's node port.

    A Service of type LoadBalancer also has a node port, which users do not need.

    If Kubernetes chooses the node port, a preview may not know it yet. The preview then shows the
    Service's port.
    """
    (port,) = ports
    return int(port.node_port if service == "NodePort" and port.node_port else port.port)


def _sackd(args: LoginArgs) -> pods.Spec:
    return {
        "name": "sackd",
        **pods.image("login", args.site.images),
        "command": [f"{c.PROGRAMS}/sackd"],
        "restartPolicy": "Always",
        "env": [{"name": "SLURM_CONF_SERVER", "value": args.slurmctld.server}],
        **pods.security(user=c.SLURM_ID),
        **pods.requests("10m", "16Mi"),
        "startupProbe": {
            **pods.command("test", "-e", f"{c.SLURM_RUN}/conf/slurm.conf"),
            "periodSeconds": 1,
            "failureThreshold": 300,
        },
        "volumeMounts": [*args.site.auth.client_mounts(), pods.mount("slurm-run", c.SLURM_RUN)],
    }


def _sshd(args: LoginArgs, mounted: Sequence[pods.Mounted]) -> pods.Spec:
    run = pods.mount("slurm-run", c.SLURM_RUN, read_only=True)
    in_jail = [
        *args.site.client_mounts(),
        *([] if args.site.auth.brings_conf else [run]),
    ]
    return {
        "name": "sshd",
        **pods.image("login", args.site.images),
        **pods.security(*SSHD_CAPABILITIES, user=0, apparmor=False),
        **pods.termination_log_outside_dev(),
        **args.site.requests(c.LOGIN, "100m", "64Mi"),
        "env": [
            {"name": "DRAIN_GRACE", "value": str(args.settings.drain_grace)},
            *shows([*(one["mountPath"] for one in in_jail), *args.jail.shown()]),
        ],
        "ports": [{"name": "ssh", "containerPort": c.SSHD_PORT}],
        **pods.probes(pods.open_port(c.SSHD_PORT)),
        "volumeMounts": [
            *args.jail.mounts(),
            *in_jail,
            *pods.mounts(mounted),
        ],
    }
