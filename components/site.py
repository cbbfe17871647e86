"""Values that many components need: the stack's namespace and users, slurmctld's address, and the
jail."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pulumi

from components import conventions as c
from components import pods
from components.identity.auth import Auth, Conf
from components.identity.directory import Sssd
from components.settings import Placement, Submount, Volume, place_of
from components.storage.volumes import shown, submount_mounts, submount_volumes


@dataclass(frozen=True)
class Site:
    """Values that nearly every component needs, and the parts that a pod needs to look up users."""

    namespace: pulumi.Input[str]
    images: pods.Images
    auth: Auth
    sssd: Sssd
    users: pulumi.Input[str]
    """ConfigMap with passwd and group."""
    placement: Placement
    named: Callable[[str], str]
    """Function that returns a resource's name in Pulumi, with the prefix of this `Slurm`
    component."""

    def pod(self, service: str, *tolerations: pods.Spec) -> pods.Spec:
        """Return the defaults for the pods of a service, including on which nodes Kubernetes may
        run them.

        `tolerations` are those that the service always needs. Tolerations in the settings are added
        to them.
        """
        place = place_of(service, self.placement)
        chosen = {
            "nodeSelector": place.node_selector,
            "tolerations": [*tolerations, *pods.tolerations(place.tolerations)],
            "priorityClassName": place.priority_class,
        }
        return {
            **pods.pod_defaults(self.images),
            **{key: value for key, value in chosen.items() if value},
        }

    def requests(self, service: str, cpu: str, memory: str) -> pods.Spec:
        """Return the requests of a service's main container. The settings may override both
        values."""
        place = place_of(service, self.placement)
        return pods.requests(
            cpu if place.cpus is None else f"{place.cpus:g}",
            memory if place.memory is None else f"{place.memory}Mi",
        )

    def sidecars(self, conf: Conf) -> list[pods.Spec]:
        """Return init containers that start before the pod's own containers and stop after them."""
        return [*self.auth.sidecars(self.images, conf), *self.sssd.sidecars(self.images)]

    def volumes(self) -> list[pods.Spec]:
        return [*self.auth.volumes(), *self.user_volumes()]

    def client_mounts(self) -> list[pods.Spec]:
        return [*self.auth.client_mounts(), *self.user_mounts()]

    def daemon_mounts(self) -> list[pods.Spec]:
        return [*self.auth.daemon_mounts(), *self.user_mounts()]

    def user_volumes(self) -> list[pods.Spec]:
        return [*self.sssd.volumes(), pods.users_volume(self.users)]

    def user_mounts(self) -> list[pods.Spec]:
        """Return the mounts through which a container looks up users."""
        return [*self.sssd.mounts(), pods.users_mount()]


@dataclass(frozen=True)
class Slurmctld:
    """The running slurmctld, and the host names that nodes and clients must resolve."""

    server: pulumi.Input[str]
    """`host:port` for `--conf-server`."""
    config: pulumi.Input[str]
    """ConfigMap with Slurm's configuration files."""
    alias: pulumi.Input[pods.Spec]
    """slurmctld's line in /etc/hosts."""
    slurmdbd: Sequence[pulumi.Input[pods.Spec]]
    """slurmdbd's line in /etc/hosts; empty without accounting."""
    hosts_domain: str

    @property
    def daemons(self) -> list[pulumi.Input[pods.Spec]]:
        """Lines in /etc/hosts for slurmctld and slurmdbd."""
        return [self.alias, *self.slurmdbd]

    def names(self) -> pods.Spec:
        """Let a pod resolve the host names of the daemons and all nodes, without a domain."""
        return pods.named(self.hosts_domain, *self.daemons)


@dataclass(frozen=True)
class MountedJail:
    """The jail's claim and volumes, for pods that show the jail to users or read it."""

    claim: pulumi.Input[str]
    submounts: Sequence[Submount]

    def volumes(self) -> list[pods.Spec]:
        return [pods.claim_volume("jail", self.claim), *submount_volumes(self.submounts)]

    def mounts(self) -> list[pods.Spec]:
        return [pods.mount("jail", c.JAIL), *submount_mounts(self.submounts)]

    def shown(self, further: Iterable[Volume] = ()) -> list[str]:
        """Return the mounts that `agents.mounts` must make in the jail, as `source=target`."""
        return shown(self.submounts, further)
