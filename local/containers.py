"""A cluster's objects in Docker: its network, its node containers and their volumes."""

import datetime
import errno
import hashlib
import ipaddress
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.models.containers import Container

from components.conventions import DOMAIN, PROJECT
from local.configuration import CONFIG, VOLUMES, Node, choose_network, routed_networks
from local.errors import LocalError

LABEL_STACK = f"{DOMAIN}/stack"
LABEL_NODE = f"{DOMAIN}/node"
LABEL_CONTENT = f"{DOMAIN}/content"
"""Digest of all inputs of a node container."""
LABEL_DIRECTORY = f"{DOMAIN}/directory"
"""The stack's working directory."""
LABEL_UNPACKED = f"{DOMAIN}/unpacked"
"""Label with the name of a volume of unpacked images.

The volume itself and the volumes of nodes that require it have this label.
"""
IMAGES = "/srv/images"
"""Path, in a node, of image archives that the node loads."""
UNPACKED = "/srv/unpacked"
"""Path, in a node, of the volume of unpacked images."""
IN_MEMORY = {"/run": "", "/tmp": ""}  # noqa: S108  # the container's own
"""Directories in memory (Docker's `Tmpfs`): their contents end with the container."""
LOOPBACK = "127.0.0.1"
ROUTES = Path("/proc/net/route")

# In the order of their numbers (capabilities(7)). Later capabilities are missing, because some
# Docker engines do not know them.
CAPABILITIES = (
    *(
        "CHOWN",
        "DAC_OVERRIDE",
        "DAC_READ_SEARCH",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETGID",
        "SETUID",
    ),
    *(
        "SETPCAP",
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
    ),
    *(
        "IPC_LOCK",
        "IPC_OWNER",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
    ),
    *(
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "MKNOD",
    ),
    *(
        "LEASE",
        "AUDIT_WRITE",
        "AUDIT_CONTROL",
        "SETFCAP",
        "MAC_OVERRIDE",
        "MAC_ADMIN",
        "SYSLOG",
    ),
    *("WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ"),
)


@dataclass(frozen=True)
class Port:
    """A loopback port of the host, the node's port that it forwards to, and its settings key."""

    number: int
    target: int
    key: str


@dataclass(frozen=True)
class NodeContainer:
    """All inputs of a node's container."""

    stack: str
    directory: Path
    image: str
    node: Node
    files: Mapping[str, bytes]
    ports: tuple[Port, ...]
    unpacked: str = ""
    """Name of the volume of unpacked images with which the node starts, or "" if there is none."""

    @property
    def name(self) -> str:
        """Name of the container, and of its volume."""
        return f"{PROJECT}-{self.stack}-{self.node.name}"

    @property
    def content(self) -> str:
        """A digest of all inputs that require a new container when they change.

        It excludes the unpacked images, because a node keeps the images with which it started.
        """
        digest = hashlib.sha256()
        for part in (
            self.image,
            str(self.directory),
            self.node.address,
            repr(self.ports),
        ):
            digest.update(f"{part}\n".encode())
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]

    def labels(self) -> dict[str, str]:
        """Return the labels that identify the container and its content."""
        return {
            LABEL_STACK: self.stack,
            LABEL_NODE: str(self.node.ordinal),
            LABEL_CONTENT: self.content,
            LABEL_DIRECTORY: str(self.directory),
        }

    def configuration(self, rights: Mapping[str, Any]) -> dict[str, Any]:
        """Return the container in the format of Docker's API."""
        published = {
            f"{port.target}/tcp": [{"HostIp": LOOPBACK, "HostPort": str(port.number)}]
            for port in self.ports
        }
        network = network_name(self.stack)
        return {
            "Image": self.image,
            "Hostname": self.node.name,
            "Labels": self.labels(),
            "ExposedPorts": {port: {} for port in published},
            "HostConfig": {
                "CgroupnsMode": "private",
                "NetworkMode": network,
                # Restart the container after a reboot of the node. After repeated failures, leave
                # it stopped, so that the operator can read its log.
                "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3},
                "PortBindings": published,
                "Tmpfs": IN_MEMORY,
                "Mounts": self._mounts(),
                "LogConfig": {
                    "Type": "json-file",
                    "Config": {"max-size": "10m", "max-file": "2"},
                },
                **rights,
            },
            "NetworkingConfig": {
                "EndpointsConfig": {network: {"IPAMConfig": {"IPv4Address": self.node.address}}}
            },
        }

    def _mounts(self) -> list[dict[str, Any]]:
        labels = {LABEL_STACK: self.stack}
        shared = []
        if self.unpacked:
            labels[LABEL_UNPACKED] = self.unpacked
            shared = [
                {"Type": "volume", "Source": self.unpacked, "Target": UNPACKED, "ReadOnly": True}
            ]
        bound = {
            f"{self.directory}/nodes/{self.node.name}": (CONFIG, True),
            f"{self.directory}/volumes": (VOLUMES, False),
            f"{self.directory}/images": (IMAGES, True),
        }
        return [
            # etcd, containerd and kubelet keep their data below /var. On a volume, the data
            # outlives the container, and containerd's overlays are not on top of Docker's.
            {
                "Type": "volume",
                "Source": self.name,
                "Target": "/var",
                "VolumeOptions": {"Labels": labels},
            },
            *shared,
            *(
                {
                    "Type": "bind",
                    "Source": source,
                    "Target": target,
                    "ReadOnly": read_only,
                }
                for source, (target, read_only) in bound.items()
            ),
        ]


def network_name(stack: str) -> str:
    return f"{PROJECT}-{stack}"


def all_rights() -> dict[str, Any]:
    """Return the rights of a node container."""
    return {"Privileged": True}


def named_rights(bounding_set: int) -> dict[str, Any]:
    """Return rights like those of `all_rights`, for a host that lacks a capability.

    Docker's option `Privileged` works only if the host has all capabilities. `bounding_set`
    contains the available capabilities as bits, with the numbers of capabilities(7).
    """
    had = [name for bit, name in enumerate(CAPABILITIES) if bounding_set >> bit & 1]
    return {
        "CapAdd": had,
        "DeviceCgroupRules": ["a *:* rwm"],
        "SecurityOpt": ["seccomp=unconfined", "apparmor=unconfined", "label=disable"],
        # Docker's client also sends these empty lists for the option `systempaths=unconfined`.
        "MaskedPaths": [],
        "ReadonlyPaths": [],
    }


def bounding_set(status: Path = Path("/proc/self/status")) -> int:
    """Return the capabilities that processes of this host can have, as bits.

    Raises LocalError if the kernel does not report them.
    """
    for line in status.read_text().splitlines():
        if line.startswith("CapBnd:"):
            return int(line.split()[1], 16)
    raise LocalError(
        f"{status}: the line CapBnd is missing, so this kernel reports no capabilities; use another"
        " kernel"
    )


# --- Ports ---------------------------------------------------------------------------------------


def require_free(port: Port, stack: str) -> None:
    """Raise LocalError if something listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port.number))
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
            raise LocalError(
                f"port {port.number} on {LOOPBACK}: {reason}; "
                f"set {PROJECT}:cluster.{port.key} in Pulumi.{stack}.yaml to a free port"
            ) from None


# --- Docker --------------------------------------------------------------------------------------


def stacks(client: docker.DockerClient) -> set[str]:
    """Return the names of all stacks with an object in Docker.

    This includes stacks of other checkouts.
    """
    any_of: dict[str, str | list[str] | bool] = {"label": LABEL_STACK}
    others = [*client.volumes.list(filters=any_of), *client.networks.list(filters=any_of)]
    containers = client.containers.list(all=True, filters=any_of)
    labels = [found.labels for found in containers] + [found.attrs["Labels"] for found in others]
    return {found[LABEL_STACK] for found in labels}


@dataclass(frozen=True)
class Engine:
    """The objects of one stack in a Docker engine."""

    client: docker.DockerClient
    stack: str

    def nodes(self) -> dict[int, Container]:
        """Return the stack's node containers by ordinal, running or not."""
        found = self.client.containers.list(all=True, filters=self._ours())
        return {int(container.labels[LABEL_NODE]): container for container in found}

    def running(self) -> dict[int, Container]:
        return {k: node for k, node in self.nodes().items() if node.status == "running"}

    def started(self) -> dict[int, datetime.datetime]:
        """Return the start time of each running node, by ordinal.

        Times are cut to whole seconds, so that they can be compared with times of Kubernetes.
        """
        times = {}
        for ordinal, container in self.running().items():
            text = container.attrs["State"]["StartedAt"]
            times[ordinal] = datetime.datetime.fromisoformat(f"{text[:19]}+00:00")
        return times

    def volumes(self) -> dict[str, str]:
        """Return, by node volume, the volume of unpacked images that it requires, or ""."""
        found = self.client.volumes.list(filters=self._ours())
        return {one.name: one.attrs["Labels"].get(LABEL_UNPACKED, "") for one in found}

    def ensure_network(self) -> ipaddress.IPv4Network:
        """Return the stack's network. If it is missing, create it with unused addresses."""
        name = network_name(self.stack)
        for network in self.client.networks.list(names=[name], filters=self._ours()):
            if network.name == name:
                return _subnets(network.attrs)[0]
        taken = [
            subnet for network in self.client.networks.list() for subnet in _subnets(network.attrs)
        ]
        subnet = choose_network([*taken, *routed_networks(ROUTES.read_text())])
        self.client.networks.create(
            name,
            labels={LABEL_STACK: self.stack},
            ipam=docker.types.IPAMConfig(
                pool_configs=[docker.types.IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))]
            ),
        )
        return subnet

    def ensure_node(self, wanted: NodeContainer, existing: Container | None) -> bool:
        """Start the node's container. If its inputs changed, replace it, but keep its volume.

        Return False if the container already ran. Raises LocalError.
        """
        # If a container is still in state 'created', its start failed or was interrupted: create it
        # again.
        current = (
            existing is not None
            and existing.status != "created"
            and existing.labels.get(LABEL_CONTENT) == wanted.content
        )
        if existing is not None and current and existing.status == "running":
            return False
        for port in wanted.ports:
            if existing is None or port.number not in _published(existing):
                require_free(port, self.stack)
        if existing is not None and not current:
            existing.remove(force=True)
        try:
            if existing is not None and current:
                existing.start()
            else:
                start(self.client, wanted.configuration, wanted.name)
        except APIError as error:
            reason = " ".join((error.explanation or str(error)).split())
            raise LocalError(
                f"Docker cannot start the container {wanted.name}: {reason}; fix the cause, then"
                " run the command again"
            ) from error
        return True

    def stop_all(self) -> None:
        """Stop the stack's containers and keep their volumes."""
        nodes = list(self.nodes().values())
        with ThreadPoolExecutor(max(1, len(nodes))) as pool:
            for _ in pool.map(Container.stop, nodes):
                pass

    def remove_node(self, container: Container) -> None:
        """Remove a node's container with its volume."""
        container.remove(force=True)
        self._remove_volume(container.name or "")

    def remove_all(self) -> None:
        """Remove all containers, volumes and networks with the stack's label."""
        for container in self.client.containers.list(all=True, filters=self._ours()):
            container.remove(force=True, v=True)
        for volume in self.client.volumes.list(filters=self._ours()):
            volume.remove(force=True)
        for network in self.client.networks.list(filters=self._ours()):
            network.remove()

    def _remove_volume(self, name: str) -> None:
        try:
            self.client.volumes.get(name).remove(force=True)
        except NotFound:
            return

    def _ours(self) -> dict[str, str | list[str] | bool]:
        return {"label": f"{LABEL_STACK}={self.stack}"}


def start(
    client: docker.DockerClient,
    configuration: Callable[[Mapping[str, Any]], dict[str, Any]],
    name: str | None = None,
) -> str:
    """Start a container with all rights that the host can give. Return its id. Raises APIError."""
    try:
        return _start(client, configuration(all_rights()), name)
    except APIError as error:
        if not _lacks_capability(error):
            raise
        return _start(client, configuration(named_rights(bounding_set())), name)


def _start(client: docker.DockerClient, configuration: dict[str, Any], name: str | None) -> str:
    api: Any = client.api  # its type stubs lack create_container_from_config
    identity = str(api.create_container_from_config(configuration, name)["Id"])
    try:
        api.start(identity)
    except APIError:
        api.remove_container(identity, force=True)
        raise
    return identity


def _published(container: Container) -> set[int]:
    """Return the host's ports that a container uses; none if the container does not run."""
    bindings = container.ports.values()
    return {int(binding["HostPort"]) for bound in bindings if bound for binding in bound}


def _subnets(attributes: Mapping[str, Any]) -> list[ipaddress.IPv4Network]:
    pools = (attributes.get("IPAM") or {}).get("Config") or []
    networks = (ipaddress.ip_network(pool["Subnet"]) for pool in pools if pool.get("Subnet"))
    return [network for network in networks if isinstance(network, ipaddress.IPv4Network)]


def _lacks_capability(error: APIError) -> bool:
    """Return whether a start failed because a capability is missing (`unable to apply caps`)."""
    text = (error.explanation or str(error)).lower()
    return "caps" in text or "operation not permitted" in text
