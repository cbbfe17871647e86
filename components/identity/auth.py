"""Authentication of Slurm's daemons and clients, with munge or with Slurm's own plugin."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pulumi
import pulumi_random as random

from components import conventions as c
from components import pods
from components.settings import Auth as AuthSettings


@dataclass(frozen=True)
class AuthKeyArgs:
    namespace: pulumi.Input[str]
    rotations: Sequence[datetime]
    """Times at which a new key takes effect."""


class AuthKey(pulumi.ComponentResource):
    """Random keys, which exist only in Pulumi's encrypted state and in one Kubernetes Secret.

    Each pod gets the next key in advance, together with the time at which this key takes effect. So
    all pods begin to use the key at the same time.
    """

    secret: pulumi.Output[str]
    """Name of the Secret. Each entry is a key. The entry's name is the Unix time at which the key
    takes effect, or `0` for the first key."""

    def __init__(
        self, name: str, args: AuthKeyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("auth", "AuthKey"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        moments = {0: f"{name}-password"} | {
            (since := int(moment.timestamp())): f"{name}-password-{since}"
            for moment in args.rotations
        }
        secret = pods.secret(
            f"{name}-secret",
            c.AUTH_SECRET,
            args.namespace,
            # munged accepts keys of 32 to 1024 bytes. 128 letters and digits have 762 random bits.
            # Do not use the resource RandomBytes: its value is also its id, and Pulumi's state does
            # not encrypt ids.
            {
                str(since): random.RandomPassword(
                    resource, length=128, special=False, opts=child
                ).result
                for since, resource in sorted(moments.items())
            },
            child,
        )
        self.secret = secret.metadata.name
        self.register_outputs({"secret": self.secret})


class Auth(Protocol):
    """Parts of a pod that authenticate its daemons and clients."""

    @property
    def fs_group(self) -> int:
        """Group that can read the pod's Secrets."""

    @property
    def brings_conf(self) -> bool:
        """Whether the sidecars provide slurm.conf to Slurm's clients."""

    def sidecars(self, images: pods.Images, conf: "Conf") -> list[pods.Spec]:
        """Return init containers that start before the pod's own containers and stop after them."""

    def volumes(self) -> list[pods.Spec]: ...

    def client_mounts(self) -> list[pods.Spec]:
        """Return the mounts for Slurm's clients."""

    def daemon_mounts(self) -> list[pods.Spec]:
        """Return the mounts for slurmctld and slurmd."""

    def daemon_environment(self) -> list[pods.Spec]:
        """Return the environment of slurmctld and slurmd."""


@dataclass(frozen=True)
class Conf:
    """Source of Slurm's configuration in a pod: slurmctld or a volume."""

    server: pulumi.Input[str] | None = None
    """`host:port` of slurmctld."""
    follow: bool = False
    """Whether sackd fetches changed configuration files for users' clients. False in a pod with
    slurmd, because both daemons would listen on the same port for these changes."""
    mount: pods.Spec | None = None
    """Mount of the folder with slurm.conf."""


def auth(settings: AuthSettings, secret: pulumi.Input[str]) -> Auth:
    """Return the authentication plugin that the settings choose. `secret` is the Secret of an
    `AuthKey`."""
    return Munge(secret) if settings.type == "munge" else SlurmKey(secret)


def pod_security(plugin: Auth, *sysctls: pods.Spec) -> pods.Spec:
    """Return a pod's security context: sysctls, and the group that lets sidecars read the keys."""
    further = {"sysctls": list(sysctls)} if sysctls else {}
    return pods.owned_by(plugin.fs_group, **further)


def daemon_security(plugin: Auth) -> pods.Spec:
    """Return the security context for slurmctld and slurmdbd, whose volumes belong to `slurm`."""
    return pods.owned_by(c.SLURM_ID, supplementalGroups=[plugin.fs_group])


@dataclass(frozen=True)
class Munge:
    """auth/munge: each pod runs one munged per valid key; other containers mount the sockets."""

    secret: pulumi.Input[str]
    fs_group: int = c.MUNGE_ID
    brings_conf: bool = False

    def sidecars(self, images: pods.Images, conf: Conf) -> list[pods.Spec]:
        del conf  # munged needs no configuration of Slurm
        encode = ("munge", f"--socket={c.MUNGE_SOCKET}", "--no-input")
        decode = ("unmunge", f"--socket={c.MUNGE_SOCKET}", "--no-output")
        # Kill a hung munged after a few seconds, because it ignores SIGTERM. Otherwise, the kubelet
        # would wait for the pod's grace period, which can be hours.
        killed = {"terminationGracePeriodSeconds": 5}
        munged = {
            "name": "munge",
            **pods.image("base", images),
            "command": [f"{c.PROGRAMS}/munged"],
            "restartPolicy": "Always",
            **pods.security(user=c.MUNGE_ID),
            **pods.requests("10m", "16Mi"),
            "startupProbe": {
                **pods.command(*encode),
                "periodSeconds": 1,
                "failureThreshold": 60,
                **killed,
            },
            # If munged hangs, the node cannot contact slurmctld, so the kubelet must restart
            # munged. The other containers find the socket of the new munged in the same directory.
            "livenessProbe": {
                **pods.command("sh", "-c", f"{shlex.join(encode)} | {shlex.join(decode)}"),
                "periodSeconds": 30,
                "timeoutSeconds": 10,
                "failureThreshold": 3,
                **killed,
            },
            "volumeMounts": [
                pods.mount("auth-secret", c.AUTH_SECRET_DIR, read_only=True),
                pods.mount("munge", c.MUNGE_OWN),
            ],
        }
        return [munged]

    def volumes(self) -> list[pods.Spec]:
        return [
            pods.secret_volume("auth-secret", self.secret),
            pods.memory_volume("munge", "1Mi"),
        ]

    def client_mounts(self) -> list[pods.Spec]:
        socket = pods.mount("munge", c.MUNGE_RUN, read_only=True)
        return [{**socket, "subPath": "socket"}]

    def daemon_mounts(self) -> list[pods.Spec]:
        return self.client_mounts()

    def daemon_environment(self) -> list[pods.Spec]:
        return []


@dataclass(frozen=True)
class SlurmKey:
    """auth/slurm: slurmctld and slurmd read the keys themselves. In each pod, a sackd daemon
    authenticates users."""

    secret: pulumi.Input[str]
    fs_group: int = c.SLURM_ID
    brings_conf: bool = True

    def sidecars(self, images: pods.Images, conf: Conf) -> list[pods.Spec]:
        sackd = {
            "name": "sackd",
            **pods.image("login", images),
            "command": [f"{c.PROGRAMS}/auth-sackd"],
            "restartPolicy": "Always",
            "env": [
                *self.daemon_environment(),
                *([{"name": "SLURM_CONF_SERVER", "value": conf.server}] if conf.server else []),
                *([{"name": "FOLLOW", "value": "yes"}] if conf.follow else []),
            ],
            **pods.security(user=c.SLURM_ID),
            **pods.requests("10m", "16Mi"),
            "startupProbe": {
                **pods.command("test", "-e", f"{c.SLURM_RUN}/ready"),
                "periodSeconds": 1,
                "failureThreshold": 300,
            },
            "volumeMounts": [
                pods.mount("auth-secret", c.AUTH_SECRET_DIR, read_only=True),
                pods.mount("auth-keys", c.AUTH_KEYS),
                pods.mount("slurm-run", c.SLURM_RUN),
                *([conf.mount] if conf.mount else []),
            ],
        }
        return [sackd]

    def volumes(self) -> list[pods.Spec]:
        return [
            pods.secret_volume("auth-secret", self.secret),
            pods.memory_volume("auth-keys", "1Mi"),
            pods.disk_volume("slurm-run"),
        ]

    def client_mounts(self) -> list[pods.Spec]:
        return [pods.mount("slurm-run", c.SLURM_RUN, read_only=True)]

    def daemon_mounts(self) -> list[pods.Spec]:
        return [pods.mount("auth-keys", c.AUTH_KEYS, read_only=True), *self.client_mounts()]

    def daemon_environment(self) -> list[pods.Spec]:
        return [{"name": "SLURM_SACK_JWKS", "value": f"{c.AUTH_KEYS}/slurm.jwks"}]
