"""What components share: the stack's namespace and users, slurmctld's address, and the jail."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pulumi

from components import conventions as c
from components import pods
from components.identity.auth import Auth, Conf
from components.identity.directory import Sssd
from components.settings import Submount, Volume
from components.storage.volumes import shown, submount_mounts, submount_volumes


@dataclass(frozen=True)
class Site:
    """What nearly every component needs, and the parts by which its pods know the users."""

    namespace: pulumi.Input[str]
    images: pods.Images
    auth: Auth
    sssd: Sssd
    users: pulumi.Input[str]
    """ConfigMap with passwd and group."""

    def sidecars(self, conf: Conf) -> list[pods.Spec]:
        """Return init containers that start before the pod's own containers and stop after them."""
        return [*self.auth.sidecars(self.images, conf), *self.sssd.sidecars(self.images)]

    def volumes(self) -> list[pods.Spec]:
        return [*self.auth.volumes(), *self.user_volumes()]

    def client_mounts(self) -> list[pods.Spec]:
        """Return the mounts of Slurm's clients."""
        return [*self.auth.client_mounts(), *self.user_mounts()]

    def daemon_mounts(self) -> list[pods.Spec]:
        """Return the mounts of Slurm's daemons."""
        return [*self.auth.daemon_mounts(), *self.user_mounts()]

    def user_volumes(self) -> list[pods.Spec]:
        return [*self.sssd.volumes(), pods.users_volume(self.users)]

    def user_mounts(self) -> list[pods.Spec]:
        """Return the mounts by which a container knows the users."""
        return [*self.sssd.mounts(), pods.users_mount()]


@dataclass(frozen=True)
class Slurmctld:
    """The running slurmctld, and names that its nodes and clients can resolve."""

    server: pulumi.Input[str]
    """`host:port` for `--conf-server`."""
    config: pulumi.Input[str]
    """ConfigMap with Slurm's configuration files."""
    alias: pulumi.Input[pods.Spec]
    """Its line of /etc/hosts."""
    slurmdbd: Sequence[pulumi.Input[pods.Spec]]
    """The line for slurmdbd, if there is one."""
    hosts_domain: str

    @property
    def daemons(self) -> list[pulumi.Input[pods.Spec]]:
        """Lines of /etc/hosts for both daemons."""
        return [self.alias, *self.slurmdbd]

    def names(self) -> pods.Spec:
        """Let a pod find the daemons and all nodes by their bare host names."""
        return pods.named(self.hosts_domain, *self.daemons)


@dataclass(frozen=True)
class MountedJail:
    """The jail's claim and the volumes in it, for pods that show it to users or read it."""

    claim: pulumi.Input[str]
    submounts: Sequence[Submount]

    def volumes(self) -> list[pods.Spec]:
        return [pods.claim_volume("jail", self.claim), *submount_volumes(self.submounts)]

    def mounts(self) -> list[pods.Spec]:
        return [pods.mount("jail", c.JAIL), *submount_mounts(self.submounts)]

    def shown(self, further: Iterable[Volume] = ()) -> list[str]:
        """Return what `agents.mounts` must show of all volumes in the jail, as `source=target`."""
        return shown(self.submounts, further)
