"""An NFS server for the jail. Clusters need it if they have no other storage that several nodes can
mount (ReadWriteMany)."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import NfsServer as NfsServerSettings
from components.site import Site

_CAPABILITIES = (
    "CHOWN",  # root on a client may change owners of files
    "DAC_OVERRIDE",  # root on a client may ignore modes of files
    "DAC_READ_SEARCH",  # Ganesha opens files by handle (open_by_handle_at(2))
    "FOWNER",  # root on a client may set modes and times of all files
    "FSETID",  # root on a client may keep the set-user-ID and set-group-ID bits
    "SETGID",  # Ganesha carries out each request as its sender, with the sender's groups
    "SETUID",
)
"""Capabilities that Ganesha, the NFS server, needs for the requests of clients."""
_MOUNT_OPTIONS = (
    "nfsvers=4.1",
    # Use a new port for each new connection. With the same port, the machine's address translation
    # would still send packets to the server's previous address.
    "noresvport",
)
_LEASE = 60
"""If a machine has no contact with the server for this number of seconds, it loses its locks."""
_GRACE = 90
"""For this many seconds after its restart, the server only lets machines reclaim the open files and
locks that they had before. The period ends early if all machines have done so. It must be longer
than the pause between two retries of a client."""


@dataclass(frozen=True)
class NfsServerArgs:
    namespace: pulumi.Input[str]
    settings: NfsServerSettings
    size: int
    """Size of the server's volume in MiB."""
    site: Site
    protect: bool


class NfsServer(pulumi.ComponentResource):
    """NFS-Ganesha with a volume, and its Service. The Service keeps its address when the server
    moves to another machine."""

    source: pods.Spec
    """The export, as the source of a PersistentVolume; known once the server is ready."""

    def __init__(
        self, name: str, args: NfsServerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("nfs", "NfsServer"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        kept = pulumi.ResourceOptions(parent=self, protect=args.protect)
        files = {"ganesha.conf": ganesha_conf(args.settings.machines)}
        config = pods.config_map(f"{name}-config", c.JAIL_SERVER, args.namespace, files, child)
        volume = pods.claim(
            f"{name}-volume",
            c.JAIL_SERVER,
            args.namespace,
            pods.Volume("ReadWriteOnce", args.size, args.settings.storage_class),
            kept,
        )
        # Use a StatefulSet, because it never runs two servers, even if a machine is lost.
        ganesha = k8s.apps.v1.StatefulSet(
            f"{name}-ganesha",
            metadata={"name": c.JAIL_SERVER, "namespace": args.namespace},
            spec=pods.workload(
                c.JAIL_SERVER,
                _pod(args, volume.metadata.name, config.metadata.name),
                {c.ANNOTATION_CHECKSUM: c.checksum(files)},
                replicas=1,
                serviceName=c.JAIL_SERVER,
            ),
            opts=child,
        )
        service = pods.service(
            f"{name}-service",
            c.JAIL_SERVER,
            args.namespace,
            ganesha,
            pods.service_port("nfs", c.NFS_PORT),
            # Protect the Service: the jail's PersistentVolume contains the Service's address, and
            # cannot be changed.
            kept,
        )
        # Use the Service's address instead of its name: machines mount the file system, and they
        # cannot resolve names of Services.
        self.source = {
            "nfs": {"server": service.spec.cluster_ip, "path": "/"},
            "mountOptions": list(_MOUNT_OPTIONS),
        }
        self.register_outputs({"source": self.source})


def _pod(args: NfsServerArgs, volume: pulumi.Input[str], config: pulumi.Input[str]) -> pods.Spec:
    mounted = [
        pods.mounted(pods.claim_volume("data", volume), c.JAIL_SERVED),
        pods.mounted(pods.config_volume("config", config), c.JAIL_SERVER_ETC, read_only=True),
        pods.mounted(pods.memory_volume("run", "4Mi"), "/run/ganesha"),
        # Ganesha needs /tmp to test which kinds of file locks the machine supports.
        pods.mounted(pods.memory_volume("tmp", "4Mi"), "/tmp"),
    ]
    return {
        **args.site.pod(c.JAIL_SERVER),
        # Run on another machine than jobs, to avoid a deadlock. A machine that is short of memory
        # writes the data of its jobs to this server. If the server runs on the same machine, it may
        # itself wait for the memory that these writes would free.
        **pods.rather_apart_from(c.WORKER),
        "containers": [_ganesha(args.site, mounted)],
        "volumes": pods.volumes(mounted),
    }


def ganesha_conf(machines: Sequence[str]) -> str:
    """Render ganesha-config(8). `machines` are the ranges of clients; empty for all clients.

    With `SecType = sys`, the server trusts the uid that a client sends, even that of root, which
    owns the jail's system files. The only protection is therefore that other clients cannot
    connect. Both this file and the network policies refuse them.
    """
    access = "RW"
    clients = ""
    if machines:
        access = "None"
        named = ", ".join(map(_client, machines))
        clients = f"CLIENT {{ Clients = {named}; Access_Type = RW; }}\n  "
    return f"""\
LOG {{ COMPONENTS {{ DBUS = FATAL; }} }}
NFS_CORE_PARAM {{
  Protocols = 4;
  NFS_Port = {c.NFS_PORT};
  Enable_UDP = false;
  Enable_NLM = false;
  Enable_RQUOTA = false;
  Clustered = false;
  # The I/O flusher requires the capability SYS_RESOURCE.
  Allow_Set_Io_Flusher_Fail = true;
}}
NFS_KRB5 {{ Active_krb5 = false; }}
NFSV4 {{
  Minor_Versions = 1;
  Only_Numeric_Owners = true;
  Lease_Lifetime = {_LEASE};
  Grace_Period = {_GRACE};
  RecoveryBackend = fs_ng;
  RecoveryRoot = {c.JAIL_SERVED}/recovery;
}}
EXPORT {{
  Export_Id = 0;
  Path = {c.JAIL_SERVED}/files;
  Pseudo = /;
  Protocols = 4;
  Transports = TCP;
  SecType = sys;
  Squash = No_Root_Squash;
  Access_Type = {access};
  {clients}Disable_ACL = true;
  # Machines distinguish file systems by this id.
  Filesystem_Id = 1.1;
  FSAL {{ Name = VFS; }}
}}
"""


def _client(cidr: str) -> str:
    """Return a range in Ganesha's format, in which a single IPv6 address must not end with /128."""
    network = ip_network(cidr)
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else cidr


def _ganesha(site: Site, mounted: Sequence[pods.Mounted]) -> pods.Spec:
    security = pods.security(*_CAPABILITIES, user=0)["securityContext"]
    return {
        "name": "ganesha",
        **pods.image("nfs", site.images),
        "securityContext": {**security, "readOnlyRootFilesystem": True},
        **site.requests(c.JAIL_SERVER, "100m", "512Mi"),
        "ports": [{"name": "nfs", "containerPort": c.NFS_PORT}],
        **pods.probes(pods.open_port(c.NFS_PORT)),
        "volumeMounts": pods.mounts(mounted),
    }
