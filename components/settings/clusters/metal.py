"""Settings of a cluster on your own machines; the deploy connects to them by SSH."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, JsonValue, model_validator

from components.conventions import CLUSTER_DOMAIN
from components.settings.clusters.base import (
    BaseCluster,
    Problem,
    blocked_pods,
    missing_registry,
    unreachable_machines,
)
from components.settings.types import (
    Address,
    Cidr,
    DnsLabel,
    Host,
    KubernetesRelease,
    Model,
    Port,
    SshKey,
    UserName,
    cross_field,
    duplicates,
    known_names,
)

if TYPE_CHECKING:
    from components.settings.models import Settings

KubeadmKind = Literal[
    "ClusterConfiguration", "KubeProxyConfiguration", "KubeletConfiguration", "nodeRegistration"
]
API_PORT: Final = 6443
"""Port of kube-apiserver (source: kubeadm, APIEndpoint)."""
_NODE_BITS: Final = 24
"""Prefix length of one machine's pod range (source: kube-controller-manager,
--node-cidr-mask-size)."""
_POD_BITS: Final = range(8, _NODE_BITS + 1)
_SERVICE_BITS: Final = range(12, 29)
"""Allowed prefix lengths of the range for Services. kube-apiserver accepts no range larger than /12
(source: --service-cluster-ip-range)."""
_QUORUMS: Final = (1, 3)
"""Allowed numbers of etcd members. With two members, etcd would stop if one member fails."""
_OURS: Final[Mapping[KubeadmKind, Mapping[str, str]]] = {
    "ClusterConfiguration": {
        "clusterName": "cluster_name",
        "controlPlaneEndpoint": "cluster.endpoint",
        "kubernetesVersion": "cluster.release",
        "networking": "cluster.pods and cluster.services",
    },
    "KubeProxyConfiguration": {},
    "KubeletConfiguration": {},
    "nodeRegistration": {
        "kubeletExtraArgs": "KubeletConfiguration",
        "name": "cluster.machines",
        "taints": "cluster.machines[].nodeset",
    },
}
"""Fields of kubeadm that the deploy sets, and the settings to use instead."""


class MetalMachine(Model):
    """A machine with Debian or Ubuntu."""

    name: DnsLabel
    """Name of the machine in Kubernetes."""
    address: Address
    """IPv4 address of the machine; the deploy and the other machines connect to it."""
    host_key: SshKey
    """Public SSH host key of the machine, as in /etc/ssh/ssh_host_ed25519_key.pub. The deploy
    accepts no other key."""
    port: Port = 22
    """Port of the machine's sshd."""
    user: UserName = "root"
    """User for SSH logins: root, or a user with sudo rights without a password."""
    nodeset: DnsLabel | None = None
    """Nodeset that the machine is reserved for; by default everything except workers may run on
    the machine."""
    lost: bool = False
    """The machine is permanently lost. This deploy runs nothing on the machine. Before the next
    deploy, you can remove the machine from the list."""


class MetalCluster(BaseCluster):
    """Kubernetes on existing machines, installed with kubeadm."""

    makes_machines: ClassVar[bool] = True
    domain: ClassVar[str] = CLUSTER_DOMAIN
    kind: Literal["metal"]
    release: KubernetesRelease = "1.34.4"
    """Kubernetes release."""
    machines: tuple[MetalMachine, ...] = ()
    control_planes: Annotated[tuple[DnsLabel, ...], Field(min_length=1)]
    """Names of the one or three control plane machines, which store the data of Kubernetes. The
    first one creates the cluster."""
    endpoint: Host | None = None
    """Host name or address, without a port, that leads to port 6443 of all control planes. With one
    control plane, the default is its address. Later deploys cannot change the endpoint."""
    pods: Cidr = "10.244.0.0/16"
    """Address range of pods."""
    services: Cidr = "10.96.0.0/12"
    """Address range of Services."""
    key_file: str | None = None
    """File with the private SSH key, on the machine that deploys; by default the stack's secret
    `metal:ssh_key`."""
    kubeadm: dict[KubeadmKind, dict[str, JsonValue]] = {}
    """Further fields of kubeadm's configuration, by kind, with the names in kubeadm's reference."""

    def api(self) -> str:
        """Return the host and port of the Kubernetes API."""
        return f"{self.endpoint or self.machine(self.control_planes[0]).address}:{API_PORT}"

    def machine(self, name: str) -> MetalMachine:
        """Return a machine by its name. Raises `KeyError`."""
        return {machine.name: machine for machine in self.machines}[name]

    @model_validator(mode="after")
    def _machines_differ(self) -> Self:
        for key in ("name", "address"):
            for value in duplicates(getattr(machine, key) for machine in self.machines):
                raise cross_field(
                    "machines", f"two machines have the {key} '{value}'; give each a unique {key}"
                )
        return self

    @model_validator(mode="after")
    def _control_planes_are_machines(self) -> Self:
        names = {machine.name for machine in self.machines}
        for name in self.control_planes:
            if name not in names:
                known = known_names(name, names)
                raise cross_field("control_planes", f"'{name}' is not a machine; {known}")
        for name in duplicates(self.control_planes):
            raise cross_field("control_planes", f"'{name}' is listed twice; keep one")
        count = len(self.control_planes)
        if count not in _QUORUMS:
            raise cross_field(
                "control_planes",
                f"{count} machines: etcd needs one or three control planes; list one or three "
                "machines",
            )
        if count > 1 and self.endpoint is None:
            raise cross_field(
                "endpoint",
                f"is required with {count} control planes; set it to a name or address that leads "
                "to all of them",
            )
        return self

    @model_validator(mode="after")
    def _ranges_divide_and_lie_apart(self) -> Self:
        for key, value, bits in (
            ("pods", self.pods, _POD_BITS),
            ("services", self.services, _SERVICE_BITS),
        ):
            network = ipaddress.ip_network(value)
            if network.version != 4 or network.prefixlen not in bits:
                raise cross_field(
                    key,
                    f"'{value}': expected an IPv4 range from /{bits.start} to /{bits.stop - 1}",
                )
        pods, services = (ipaddress.IPv4Network(text) for text in (self.pods, self.services))
        if pods.overlaps(services):
            raise cross_field(
                "services", f"'{services}': overlaps cluster.pods ({pods}); choose another range"
            )
        for machine in self.machines:
            for key, network in (("pods", pods), ("services", services)):
                if ipaddress.IPv4Address(machine.address) in network:
                    raise cross_field(
                        key,
                        f"'{network}': contains the address of machine '{machine.name}'; "
                        "choose another range",
                    )
        places = 1 << _NODE_BITS - pods.prefixlen
        if len(self.machines) > places:
            raise cross_field(
                "pods",
                f"'{pods}': is enough for only {places} of {len(self.machines)} machines, because "
                f"each needs a /{_NODE_BITS}; choose a larger range",
            )
        return self

    @model_validator(mode="after")
    def _fields_are_free(self) -> Self:
        for kind, fields in self.kubeadm.items():
            for field in fields:
                if field in _OURS[kind]:
                    raise cross_field(
                        f"kubeadm.{kind}",
                        f"the deploy sets the kubeadm field '{field}' itself; use "
                        f"{_OURS[kind][field]} instead",
                    )
        return self

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Require machines for each nodeset's nodes, and one machine for everything else."""
        if self.key_file and self.key_file.endswith(".pub"):
            yield (
                "cluster.key_file",
                f"'{self.key_file}': is a public key; expected the file of the private key",
            )
        yield from blocked_pods(stack, self.pods)
        yield from unreachable_machines(stack)
        yield from self._jail_problems(stack)
        yield from missing_registry(stack)
        nodesets = {nodeset.name for nodeset in stack.nodesets}
        for index, machine in enumerate(self.machines):
            if machine.nodeset is not None and machine.nodeset not in nodesets:
                known = known_names(machine.nodeset, nodesets)
                yield (
                    f"cluster.machines[{index}].nodeset",
                    f"'{machine.nodeset}' is not a nodeset; {known}",
                )
        if all(machine.nodeset is not None for machine in self.machines):
            yield (
                "cluster.machines",
                (
                    "each machine is reserved for a nodeset, so the other services have no "
                    "machine; add a machine without the setting 'nodeset'"
                ),
            )
        for index, nodeset in enumerate(stack.nodesets):
            own = [machine.name for machine in self.machines if machine.nodeset == nodeset.name]
            if nodeset.replicas > len(own):
                yield (
                    f"nodesets[{index}].replicas",
                    (
                        f"{nodeset.replicas}: cluster.machines has only {len(own)} machines for "
                        f"nodeset '{nodeset.name}' ({', '.join(own) or 'none'}); lower replicas, "
                        "or add machines"
                    ),
                )

    def _jail_problems(self, stack: Settings) -> Iterator[Problem]:
        """Require that the jail's server admits all machines: their pods mount the jail."""
        ranges = stack.jail.server.machines if stack.jail.server else ()
        networks = [ipaddress.ip_network(text) for text in ranges]
        outside = [
            machine
            for machine in self.machines
            if not machine.lost
            and not any(ipaddress.ip_address(machine.address) in each for each in networks)
        ]
        if networks and outside:
            first, *others = outside
            names = ", ".join(each.name for each in others)
            also = f", nor of {names}" if others else ""
            affected = "these machines" if others else "this machine"
            yield (
                "jail.server.machines",
                (
                    f"{', '.join(ranges)}: does not contain the address of machine '{first.name}' "
                    f"({first.address}){also}, so {affected} could not mount the jail; add "
                    f"{first.address}/32, or a range that contains all machines"
                ),
            )

    def warnings(self, stack: Settings) -> Iterator[Problem]:
        """Warn about parts that kubeadm does not install."""
        if stack.network.cilium is None:
            yield (
                "network.cilium",
                (
                    "is not set, and kubeadm installs no network plugin, so nodes do not become "
                    "ready; add 'network.cilium: {}', or install another network plugin on the "
                    "machines"
                ),
            )
        yield from _storage_warnings(stack)
        yield from self._lost_nodes(stack)
        yield from self._shared_cpus(stack)
        if "service" not in stack.login.model_fields_set:
            yield (
                "login.service",
                (
                    f"is not set, so its default '{stack.login.service}' applies. kubeadm "
                    "installs no load balancer, so the deploy would wait for an address and fail. "
                    "Set login.service to 'NodePort' and add login.node_port. If you install a "
                    "load balancer yourself, set it to 'LoadBalancer'"
                ),
            )

    def _shared_cpus(self, stack: Settings) -> Iterator[Problem]:
        """Warn about `exclusive_cpus` if the kubelet's policy gives no pod its own CPUs."""
        policy = self.kubeadm.get("KubeletConfiguration", {}).get("cpuManagerPolicy", "none")
        for nodeset in stack.nodesets:
            if nodeset.exclusive_cpus and policy != "static":
                yield (
                    f"nodesets[{nodeset.name}].exclusive_cpus",
                    (
                        f"true: has no effect, because the kubelet's CPU manager has the policy "
                        f"'{policy}'; set cluster.kubeadm.KubeletConfiguration.cpuManagerPolicy to "
                        "static, and add reservedSystemCPUs in the same section"
                    ),
                )

    def _lost_nodes(self, stack: Settings) -> Iterator[Problem]:
        """Warn about nodes on lost machines.

        Do not refuse these settings: a deploy may run before new machines arrive.
        """
        for nodeset in stack.nodesets:
            own = [machine for machine in self.machines if machine.nodeset == nodeset.name]
            lost = [machine.name for machine in own if machine.lost]
            left = len(own) - len(lost)
            if lost and nodeset.replicas > left:
                yield (
                    f"nodesets[{nodeset.name}].replicas",
                    (
                        f"{nodeset.replicas}: only {left} machines of the nodeset remain, because "
                        f"{', '.join(lost)} are marked as lost, so pods stay pending; lower "
                        "'replicas', or add machines"
                    ),
                )


def _storage_warnings(stack: Settings) -> Iterator[Problem]:
    """Warn about volumes of the default StorageClass, which kubeadm does not create."""
    first, *others = _without_class(stack) or [""]
    if first:
        also = f", nor are {', '.join(others)}" if others else ""
        yield (
            first,
            (
                f"is not set{also}; kubeadm installs no storage, so the volumes stay "
                "pending until the cluster has a default StorageClass; set each storage_class"
            ),
        )


def _without_class(stack: Settings) -> list[str]:
    """Return each key `storage_class` that the settings do not set for a volume of the stack."""
    accounting, jail = stack.accounting, stack.jail
    backup = accounting.backup
    on_volume = backup.enabled and not (backup.claim or backup.nfs or backup.s3)
    volumes = {
        "jail": None if jail.origin() else jail,
        "jail.server": jail.server,
        "controller": stack.controller,
        "accounting.archive": accounting.archive,
        "accounting.database": accounting.database if accounting.external is None else None,
        "accounting.backup": backup if on_volume else None,
        "long_checks": stack.long_checks if stack.long_checks.checks else None,
        "monitoring.bundled": (
            stack.monitoring.bundled if stack.monitoring.kind == "bundled" else None
        ),
    }
    return [
        f"{key}.storage_class"
        for key, volume in volumes.items()
        if volume and volume.storage_class is None
        if accounting.enabled or not key.startswith("accounting.")
    ]
