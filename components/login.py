"""Where users log in: sshd, whose sessions see the jail as their root."""

import hashlib
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from components import conventions as c
from components import pods
from components.auth import Auth, Conf, pod_security
from components.settings import Login as LoginSettings

_SSHD_CAPABILITIES = (
    # sshd takes on the user, owns the terminal it gives out, and signals the session.
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
    # For the mounts at start; the entrypoint gives SYS_ADMIN up before sshd runs.
    "SETPCAP",
    "SYS_ADMIN",
)


def host_key(seed: str) -> str:
    """The Ed25519 private key that follows from a random text, as PEM.

    PKCS #8 and not OpenSSH's own format, which puts random numbers in: the same seed must give
    the same text, or every deploy would see a change.
    """
    return (
        _private_key(seed)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


def public_host_key(seed: str) -> str:
    """The public half, as it stands in a known_hosts file after the host's name."""
    return (
        _private_key(seed)
        .public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        .decode()
    )


def _private_key(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(seed.encode()).digest())


@dataclass(frozen=True)
class LoginArgs:
    namespace: pulumi.Input[str]
    settings: LoginSettings
    images: pods.Images
    auth: Auth
    accounts: pulumi.Input[str]
    """ConfigMap with passwd and group."""
    keys: pulumi.Input[str]
    """ConfigMap with each user's public keys."""
    jail_claim: pulumi.Input[str]
    conf_server: pulumi.Input[str]
    """`host:port` of slurmctld."""
    hosts_domain: str


class Login(pulumi.ComponentResource):
    """sshd with a host key that survives it, sackd for Slurm's configuration, and the Service."""

    host_key: pulumi.Output[str]
    """Public host key, for known_hosts."""

    def __init__(
        self, name: str, args: LoginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("login", "Login"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # 64 letters and digits hold more random bits than the key. No RandomBytes: see auth.
        seed = random.RandomPassword(f"{name}-host-key-seed", length=64, special=False, opts=child)
        key = k8s.core.v1.Secret(
            f"{name}-host-key",
            metadata={"name": c.HOST_KEY_SECRET, "namespace": args.namespace},
            type="Opaque",
            string_data={"host_key": seed.result.apply(host_key)},
            opts=child,
        )
        conf = Conf(server=args.conf_server, follow=True)
        brings_conf = args.auth.brings_conf
        sshd = k8s.apps.v1.StatefulSet(
            f"{name}-sshd",
            metadata={"name": c.LOGIN, "namespace": args.namespace},
            spec={
                "replicas": 1,
                "serviceName": c.HOSTS,
                # Parallel: an ordered set does not replace a pod that never became ready, so that
                # a bad edit could not be mended by a good one.
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": pods.labels(c.LOGIN)},
                "template": {
                    "metadata": {"labels": pods.labels(c.LOGIN)},
                    "spec": {
                        **pods.pod_defaults(args.images),
                        **pods.named(args.hosts_domain),
                        **pod_security(args.auth),
                        "initContainers": [
                            *args.auth.sidecars(args.images, conf),
                            *([] if brings_conf else [_sackd(args)]),
                        ],
                        "containers": [_sshd(args)],
                        "volumes": [
                            *args.auth.volumes(),
                            pods.claim_volume("jail", args.jail_claim),
                            pods.config_volume("keys", args.keys),
                            *([] if brings_conf else [pods.disk_volume("slurm-run")]),
                            pods.disk_volume("tmp"),
                            pods.secret_volume("host-key", key.metadata.name),
                            pods.users_volume(args.accounts),
                        ],
                    },
                },
            },
            opts=child,
        )
        k8s.core.v1.Service(
            f"{name}-service",
            metadata={"name": c.LOGIN, "namespace": args.namespace},
            spec={
                "type": args.settings.service,
                "selector": sshd.spec.selector.match_labels,
                "ports": [
                    {
                        "name": "ssh",
                        "port": c.SSH_PORT,
                        "targetPort": c.SSHD_PORT,
                        **(
                            {"nodePort": args.settings.node_port} if args.settings.node_port else {}
                        ),
                    }
                ],
            },
            opts=child,
        )
        self.host_key = pulumi.Output.unsecret(seed.result.apply(public_host_key))
        self.register_outputs({"hostKey": self.host_key})


def _sackd(args: LoginArgs) -> pods.Spec:
    return {
        "name": "sackd",
        **pods.image("login", args.images),
        "command": [f"{c.SPANK_DIR}/sackd"],
        "restartPolicy": "Always",
        "env": [{"name": "SLURM_CONF_SERVER", "value": args.conf_server}],
        **pods.security(user=c.SLURM_ID),
        **pods.requests("10m", "16Mi"),
        "startupProbe": {
            "exec": {"command": ["test", "-e", f"{c.SLURM_RUN}/conf/slurm.conf"]},
            "periodSeconds": 1,
            "failureThreshold": 300,
        },
        "volumeMounts": [*args.auth.client_mounts(), pods.mount("slurm-run", c.SLURM_RUN)],
    }


def _sshd(args: LoginArgs) -> pods.Spec:
    run = pods.mount("slurm-run", f"{c.JAIL}{c.SLURM_RUN}", read_only=True)
    return {
        "name": "sshd",
        **pods.image("login", args.images),
        **pods.security(*_SSHD_CAPABILITIES, user=0, unconfined=True),
        **pods.requests("100m", "64Mi"),
        "ports": [{"name": "ssh", "containerPort": c.SSHD_PORT}],
        "readinessProbe": {"tcpSocket": {"port": c.SSHD_PORT}, "periodSeconds": 2},
        "volumeMounts": [
            pods.mount("jail", c.JAIL),
            pods.mount("tmp", f"{c.JAIL}/tmp"),
            *args.auth.client_mounts(c.JAIL),
            *([] if args.auth.brings_conf else [run]),
            pods.mount("keys", c.AUTHORIZED_KEYS, read_only=True),
            pods.mount("host-key", c.HOST_KEY, read_only=True),
            pods.users_mount(),
            pods.users_mount(c.JAIL),
        ],
    }
