"""Configuration of a cluster's nodes as data: addresses, arguments and files.

This module contains pure functions. `local.cluster` writes the files and starts the nodes.
"""

import base64
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from components.conventions import CLUSTER_DOMAIN, DOMAIN
from local.certificates import Pair, Request
from local.errors import LocalError

MAX_NODES = 16
"""Maximum number of nodes.

Each node has routes to all nodes that may ever exist, so that existing nodes need no change when a
node is added.
"""
POD_RANGE = ipaddress.ip_network("10.244.0.0/16")
SERVICE_RANGE = ipaddress.ip_network("10.96.0.0/16")
API_SERVICE = SERVICE_RANGE[1]
DNS_SERVICE = SERVICE_RANGE[10]
API_PORT = 6443
"""Port of the API server inside the cluster."""
ETCD_URL = "https://127.0.0.1:2379"
DNS_READY_PORT = 10253
"""CoreDNS uses the first node's network, so this port must be unused on that node."""
VOLUMES = "/srv/volumes"
"""Path of the volumes in every node. All nodes mount the same directory of the host there."""
CONFIG = "/etc/slurmstack"
"""Path of a node's configuration files."""
PKI = f"{CONFIG}/pki"
NODE_LABELS = {f"{DOMAIN}/node-class": "cpu"}
FIRST_ADDRESS = 10
"""Offset of the first node's address in the network. Docker itself uses the lowest addresses."""


@dataclass(frozen=True)
class Node:
    """A node. Node 0 runs the control plane."""

    ordinal: int
    network: ipaddress.IPv4Network
    runtime: Literal["crun", "runc"] = "crun"
    """Program that runs the containers of pods."""

    @property
    def name(self) -> str:
        return node_name(self.ordinal)

    @property
    def address(self) -> str:
        """The node's address in the network of the node containers."""
        return str(self.network[FIRST_ADDRESS + self.ordinal])

    @property
    def pods(self) -> ipaddress.IPv4Network:
        """The range of addresses of the node's pods."""
        base = int(POD_RANGE.network_address) + (self.ordinal << 8)
        return ipaddress.IPv4Network((base, 24))

    @property
    def is_control_plane(self) -> bool:
        """Whether etcd and the API server run here."""
        return self.ordinal == 0

    @property
    def control_plane(self) -> "Node":
        """The node with the API server."""
        return Node(0, self.network)


def node_name(ordinal: int) -> str:
    """Return the name of a node: `node-0`, `node-1`, …"""
    return f"node-{ordinal}"


_NETWORKS = "172.30.0.0/15"
"""Address range from which each local cluster gets a network for its node containers."""


def choose_network(taken: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Return a /24 network for node containers.

    The network overlaps neither the ranges in `taken` nor the ranges of pods and Services. Raises
    LocalError if no /24 network is free.
    """
    occupied = [*taken, POD_RANGE, SERVICE_RANGE]
    for candidate in ipaddress.ip_network(_NETWORKS).subnets(new_prefix=24):
        if not any(candidate.overlaps(other) for other in occupied):
            assert isinstance(candidate, ipaddress.IPv4Network)  # noqa: S101  # for mypy
            return candidate
    raise LocalError(
        f"{_NETWORKS}: this range has no free /24 network for the local cluster, because Docker's"
        " networks or this host's routes use all of them; run `docker network prune` to remove"
        " unused networks, or remove routes"
    )


def routed_networks(table: str) -> list[ipaddress.IPv4Network]:
    """Return the networks that the host has routes to, from the text of `/proc/net/route`."""
    networks = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        destination, mask = (int(fields[column], 16) for column in (1, 7))
        if mask:
            address = int.from_bytes(destination.to_bytes(4, "little"), "big")
            bits = mask.bit_count()
            networks.append(ipaddress.IPv4Network((address, bits)))
    return networks


# --- Identities ----------------------------------------------------------------------------------

ADMIN = Request("slurmstack-admin", groups=("system:masters",))
FRONT_PROXY = Request("front-proxy-client")


def requests(node: Node) -> dict[str, Request]:
    """Return the requests for the certificates of a node, by the names of the certificates' files.

    The cluster's authority issues the certificates.
    """
    issued = {
        "kubelet": Request(
            f"system:node:{node.name}",
            groups=("system:nodes",),
            hosts=(node.name,),
            addresses=(node.address,),
        ),
        "kube-proxy": Request("system:kube-proxy"),
    }
    if node.is_control_plane:
        issued |= {
            "kube-apiserver": Request(
                "kube-apiserver",
                hosts=(
                    *("localhost", node.name, "kubernetes", "kubernetes.default"),
                    *(
                        "kubernetes.default.svc",
                        f"kubernetes.default.svc.{CLUSTER_DOMAIN}",
                    ),
                ),
                addresses=("127.0.0.1", node.address, str(API_SERVICE)),
            ),
            # The API server authenticates to kubelets with this certificate.
            "kubelet-client": Request("kube-apiserver-kubelet-client", groups=("system:masters",)),
            "etcd": Request("etcd", hosts=("localhost",), addresses=("127.0.0.1",)),
            "kube-controller-manager": Request("system:kube-controller-manager"),
            "kube-scheduler": Request("system:kube-scheduler"),
        }
    return issued


CLIENTS = ("kubelet", "kube-proxy", "kube-controller-manager", "kube-scheduler")
"""Programs of a node that have their own kubeconfig."""


def kubeconfig(server: str, authority: bytes, pair: Pair, context: str) -> dict[str, Any]:
    """Return a kubeconfig with inline certificates and keys."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "clusters": [
            {
                "name": context,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [
            {
                "name": context,
                "user": {
                    "client-certificate-data": base64.b64encode(pair.certificate).decode(),
                    "client-key-data": base64.b64encode(pair.key).decode(),
                },
            }
        ],
    }


# --- A node's files ------------------------------------------------------------------------------


def node_files(node: Node) -> dict[str, str]:
    """Return the node's files below `CONFIG`, except certificates and kubeconfigs."""
    files = {
        "node.env": _environment(node),
        "routes": _routes(node),
        "cni/10-pods.conflist": _document(cni(node)),
        "kubelet.yaml": _document(kubelet(node)),
        "kube-proxy.yaml": _document(kube_proxy(node)),
    }
    for (stage, program), command in programs(node).items():
        files[f"programs/{stage}/{program}"] = "".join(f"{word}\n" for word in command)
    return files


def _document(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _environment(node: Node) -> str:
    values = {
        "API_ADDRESS": node.control_plane.address,
        "API_PORT": str(API_PORT),
        "POD_RANGE": str(POD_RANGE),
        "RUNTIME": node.runtime,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _routes(node: Node) -> str:
    peers = (Node(ordinal, node.network) for ordinal in range(MAX_NODES) if ordinal != node.ordinal)
    return "".join(f"route replace {peer.pods} via {peer.address}\n" for peer in peers)


def cni(node: Node) -> dict[str, Any]:
    """Return the pod network: each pod has a veth pair, and its node routes the packets.

    Do not replace the addresses of pods (masquerade): slurmctld takes the address of a Slurm node
    from the connection on which slurmd registers.
    """
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    # Keep the used addresses in memory: pods end with the node, and their addresses
                    # must become free.
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": str(node.pods)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{PKI}/kubelet.crt",
        "tlsPrivateKeyFile": f"{PKI}/kubelet.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [str(DNS_SERVICE)],
        "maxPods": 110,
        "registerNode": True,
        "serializeImagePulls": False,
        # Never delete images: no registry has them, so a node could not pull them again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # Evict pods late: the nodes share disk and memory with all other programs of the host.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "systemReserved": {"cpu": "100m", "memory": "256Mi"},
        "enforceNodeAllocatable": ["pods"],
        # Interval at which kubelet updates ConfigMaps in pods; the default is one minute.
        "syncFrequency": "10s",
        # Do not measure the sizes of volumes: no program reads the sizes, and to measure the jail
        # (the shared root file system of users and jobs) is slow.
        "volumeStatsAggPeriod": "-1s",
        "runtimeRequestTimeout": "5m",
        "shutdownGracePeriod": "0s",
    }


def kube_proxy(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{CONFIG}/kube-proxy.kubeconfig"},
        "clusterCIDR": str(POD_RANGE),
        "hostnameOverride": node.name,
        "mode": "iptables",
        "oomScoreAdj": 0,
        # Do not change the size and timeouts of the kernel's table of connections, because all
        # programs of the host share this table.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"minSyncPeriod": "0s"},
        "metricsBindAddress": "127.0.0.1:10249",
    }


# --- Programs and their arguments ----------------------------------------------------------------

MEMORY_LIMITS = {
    "etcd": 128,
    "kube-apiserver": 512,
    "kube-controller-manager": 128,
    "kube-scheduler": 96,
    "kubelet": 128,
    "kube-proxy": 64,
}
"""GOMEMLIMIT in MiB: above it, a Go program uses more CPU time to save memory."""


def programs(node: Node) -> dict[tuple[str, str], list[str]]:
    """Return the command lines by stage and program; the image's entrypoint explains the stages."""
    commands = {
        ("late", "kubelet"): _kubelet_arguments(node),
        ("late", "kube-proxy"): {"config": f"{CONFIG}/kube-proxy.yaml"},
    }
    if node.is_control_plane:
        commands |= {
            ("early", "etcd"): _etcd_arguments(),
            ("early", "kube-apiserver"): _apiserver_arguments(node),
            ("last", "kube-controller-manager"): _controller_manager_arguments(),
            ("last", "kube-scheduler"): _scheduler_arguments(),
        }
    return {
        (stage, program): [
            *("env", "GOGC=50", f"GOMEMLIMIT={MEMORY_LIMITS[program]}MiB", program),
            *(f"--{name}={value}" for name, value in arguments.items()),
        ]
        for (stage, program), arguments in commands.items()
    }


def _kubelet_arguments(node: Node) -> dict[str, str]:
    return {
        "config": f"{CONFIG}/kubelet.yaml",
        "kubeconfig": f"{CONFIG}/kubelet.kubeconfig",
        "hostname-override": node.name,
        "node-ip": node.address,
        "node-labels": ",".join(f"{name}={value}" for name, value in sorted(NODE_LABELS.items())),
        "root-dir": "/var/lib/kubelet",
        "housekeeping-interval": "30s",
    }


def _etcd_arguments() -> dict[str, str]:
    peer = "https://127.0.0.1:2380"
    return {
        "name": "control-plane",
        "data-dir": "/var/lib/etcd",
        # The cluster is disposable, and may lose data if the host loses power.
        "unsafe-no-fsync": "true",
        "listen-client-urls": ETCD_URL,
        "advertise-client-urls": ETCD_URL,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"control-plane={peer}",
        "cert-file": f"{PKI}/etcd.crt",
        "key-file": f"{PKI}/etcd.key",
        "client-cert-auth": "true",
        "trusted-ca-file": f"{PKI}/ca.crt",
        "peer-cert-file": f"{PKI}/etcd.crt",
        "peer-key-file": f"{PKI}/etcd.key",
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": f"{PKI}/ca.crt",
        "log-level": "warn",
    }


def _apiserver_arguments(node: Node) -> dict[str, str]:
    issuer = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"
    return {
        "advertise-address": node.address,
        "secure-port": str(API_PORT),
        "tls-cert-file": f"{PKI}/kube-apiserver.crt",
        "tls-private-key-file": f"{PKI}/kube-apiserver.key",
        "client-ca-file": f"{PKI}/ca.crt",
        "anonymous-auth": "false",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "etcd-servers": ETCD_URL,
        "etcd-cafile": f"{PKI}/ca.crt",
        "etcd-certfile": f"{PKI}/etcd.crt",
        "etcd-keyfile": f"{PKI}/etcd.key",
        "kubelet-certificate-authority": f"{PKI}/ca.crt",
        "kubelet-client-certificate": f"{PKI}/kubelet-client.crt",
        "kubelet-client-key": f"{PKI}/kubelet-client.key",
        "kubelet-preferred-address-types": "InternalIP",
        "service-cluster-ip-range": str(SERVICE_RANGE),
        "service-account-issuer": issuer,
        "service-account-key-file": f"{PKI}/service-account.pub",
        "service-account-signing-key-file": f"{PKI}/service-account.key",
        "requestheader-client-ca-file": f"{PKI}/front-proxy-ca.crt",
        "requestheader-allowed-names": FRONT_PROXY.name,
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-username-headers": "X-Remote-User",
        "proxy-client-cert-file": f"{PKI}/front-proxy-client.crt",
        "proxy-client-key-file": f"{PKI}/front-proxy-client.key",
        "profiling": "false",
    }


def _controller_manager_arguments() -> dict[str, str]:
    config = f"{CONFIG}/kube-controller-manager.kubeconfig"
    return {
        "kubeconfig": config,
        "authentication-kubeconfig": config,
        "authorization-kubeconfig": config,
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
        "allocate-node-cidrs": "false",
        "root-ca-file": f"{PKI}/ca.crt",
        "cluster-signing-cert-file": f"{PKI}/ca.crt",
        "cluster-signing-key-file": f"{PKI}/ca.key",
        "service-account-private-key-file": f"{PKI}/service-account.key",
        "use-service-account-credentials": "true",
        # At the default rate, creating the controllers' service accounts takes five seconds.
        "kube-api-qps": "200",
        "kube-api-burst": "400",
        "profiling": "false",
    }


def _scheduler_arguments() -> dict[str, str]:
    config = f"{CONFIG}/kube-scheduler.kubeconfig"
    return {
        "kubeconfig": config,
        "authentication-kubeconfig": config,
        "authorization-kubeconfig": config,
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
        "kube-api-qps": "200",
        "kube-api-burst": "400",
        "profiling": "false",
    }


def yaml_text(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=True)
