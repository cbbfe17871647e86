"""List the allowed connections between pods, and between pods and servers or clients outside the
project."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network

from components import conventions as c
from components import pods
from components.monitoring.monitoringconf import DCGM_PORT, TELLING_PORTS
from components.settings import Settings, Store, endpoint_host, endpoint_port

METADATA = (
    "169.254.0.0/16",  # nearly all clouds; also agents that give credentials to pods
    "100.100.100.200/32",  # Alibaba Cloud
    "168.63.129.16/32",  # Azure: WireServer
    "192.0.0.192/32",  # Oracle Cloud at Customer
    "fd00:42::42/128",  # Scaleway
    "fd00:100::100:200/128",  # Alibaba Cloud
    "fd00:a9fe:a9fe::1/128",  # Akamai
    "fd00:c1::a9fe:a9fe/128",  # Oracle Cloud
    "fd00:ec2::/64",  # AWS
    "fd20:ce::254/128",  # Google Cloud
    "fe80::a9fe:a9fe/128",  # OpenStack
)
"""Addresses of clouds' metadata services, from which a client can get a machine's credentials."""

STORAGE_PORTS = (
    111,  # rpcbind, through which NFSv3 clients find servers
    *(port for first, last in c.LUSTRE_PORTS for port in range(first, last + 1)),
    c.NFS_PORT,
    20048,  # mountd of NFSv3
)
"""Ports of file systems that trust the uid which a client sends. Pods may not connect to them: only
machines may mount such file systems."""
API_PORTS = (443, 6443)
"""TCP ports of Kubernetes' API: the port of its Service, and the port on the machines that serve
it. Some network plugins apply policies to the second port."""
DNS_PORT = 53
MACHINES = ("host", "remote-node")
"""Cilium's names (entities) for Kubernetes nodes: the node that runs the pod, and all other
nodes."""
_EVERYWHERE = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True)
class Flow:
    """Allowed connections from the pods of the components in `by` to the pods of the components in
    `to`."""

    by: tuple[str, ...]
    to: tuple[str, ...]
    port: int | None = None
    """TCP port. If it is not set, all ports of all protocols are allowed."""


_NODES = (c.LOGIN, c.WORKER)
"""Components that run users' processes."""
_ASK_A_DIRECTORY = (c.ACCOUNTING, c.ACCOUNTS, c.CONTROLLER, c.EXPORTER, c.REST, *_NODES)
"""Components with an sssd, because they must know the directory's users."""
FLOWS = (
    Flow(
        (c.ACCOUNTS, c.CONFIG, c.CONFIG_CHECK, c.EXPORTER, c.REST, *_NODES),
        (c.CONTROLLER,),
        c.SLURMCTLD_PORT,
    ),
    # Allow all ports: slurmd has a fixed port, but srun, salloc, sackd and MPI listen on any free
    # port.
    Flow((c.CONTROLLER, *_NODES), _NODES),
    Flow(
        (c.BRIDGE, c.LONG_CHECK, c.LONG_CHECKS, c.ON_DEMAND, c.RECONCILER, *_NODES),
        (c.REST,),
        c.REST_PORT,
    ),
    Flow((c.CONTROLLER,), (c.ON_DEMAND,), c.ON_DEMAND_PORT),
    # Nodes ask the bridge.
    Flow((c.WORKER,), (c.BRIDGE,), c.BRIDGE_PORT),
    Flow((c.ACCOUNTS, c.CONTROLLER, c.REST, *_NODES), (c.ACCOUNTING,), c.SLURMDBD_PORT),
    # slurmdbd connects to slurmctld to report changed accounts.
    Flow((c.ACCOUNTING,), (c.CONTROLLER,), c.SLURMCTLD_PORT),
    Flow((c.ACCOUNTING, c.BACKUP, c.DUMPS), (c.DATABASE,), c.MARIADB_PORT),
    *(Flow((c.MONITORING,), (component,), port) for component, port in c.SCRAPED.items()),
    Flow((c.GRAFANA,), (c.MONITORING,), c.PROMETHEUS_PORT),
)
"""All allowed connections between pods. The policies of both pods refuse all other connections."""


# --- Rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """A server outside the project, and those of its TCP ports to which pods connect.

    NetworkPolicies allow these ports at all addresses. CiliumNetworkPolicies allow the ports only
    at this server.
    """

    ports: tuple[int, ...]
    servers: tuple[str, ...] = ()
    """Names or addresses of the server."""
    namespaces: tuple[str, ...] = ()
    """Namespaces. Connections to all pods in these namespaces are allowed."""
    entities: tuple[str, ...] = ()
    """Entities of Cilium."""


@dataclass(frozen=True)
class Rules:
    """All connections that the pods of one component may have."""

    component: str
    asked: tuple[Flow, ...]
    """Connections that other pods may open to these pods."""
    asks: tuple[Flow, ...]
    """Connections that these pods may open to other pods."""
    reaches: tuple[Reach, ...]
    dns: bool
    """Whether these pods may use DNS."""
    world: tuple[pods.Spec, ...]
    """Ranges of external addresses that these pods may connect to. Each item is a range `cidr`
    without the ranges in its list `except`."""
    names: tuple[str, ...] | None
    """External names that these pods may connect to. With None, the ranges of `world` apply
    instead."""
    open_port: int | None
    """TCP port that is open to all clients."""
    machines_port: int | None
    """TCP port that Kubernetes nodes may connect to."""
    machines: tuple[str, ...]
    """Address ranges of Kubernetes nodes, for NetworkPolicies. Cilium needs no ranges."""
    scrapers: tuple[str, ...]
    """Namespaces whose pods may scrape metrics."""


_ASK_KUBERNETES = (c.BRIDGE, c.ON_DEMAND, c.RECONCILER, c.REBOOTER, c.SNAPSHOTS)
"""Components with a credential for Kubernetes' API."""
_OPEN = {c.BRIDGE: c.BRIDGE_WEBHOOK_PORT, c.LOGIN: c.SSHD_PORT}
"""Port of each component that everyone may connect to. Kubernetes' API server, which calls the
bridge, may have any address."""
_ANYWHERE = ("all",)
_API = Reach(API_PORTS, entities=("kube-apiserver",))


def rules(settings: Settings) -> tuple[Rules, ...]:
    """Return the rules of each component. The modules `policies` and `ciliumpolicies` render their
    policies from these rules."""
    components = {component for flow in FLOWS for component in (*flow.by, *flow.to)} | {c.REBOOTER}
    if not settings.bridge:
        components.remove(c.BRIDGE)
    if not settings.backup:
        components.remove(c.BACKUP)
    elif settings.backup.restore and settings.backup.s3:
        components.add(c.JAIL_JOBS)
    if settings.jail.server:
        components.add(c.JAIL_SERVER)
    if settings.snapshots:
        components.add(c.SNAPSHOTS)
    reached = _reached(settings)
    return tuple(
        _rules(component, settings, tuple(reached.get(component, ())))
        for component in sorted(components)
    )


def _rules(component: str, settings: Settings, reaches: tuple[Reach, ...]) -> Rules:
    asks = tuple(flow for flow in FLOWS if component in flow.by)
    users = component in _NODES
    served = settings.jail.server if component == c.JAIL_SERVER else None
    return Rules(
        component=component,
        asked=tuple(flow for flow in FLOWS if component in flow.to),
        asks=asks,
        reaches=reaches,
        # Allow DNS if the pod connects to other pods of the project. The pod for logs does not, but
        # must look up the name of the log collector. A restore of the jail must look up its store.
        dns=bool(asks) or component in (c.JAIL_JOBS, c.LOGS),
        world=tuple(_world(settings.network.refuse)) if users else (),
        names=settings.network.names if users else None,
        open_port=_OPEN.get(component),
        machines_port=c.NFS_PORT if served else None,
        machines=served.machines if served else (),
        scrapers=settings.monitoring.scrape_from if component in c.SCRAPED else (),
    )


def _reached(settings: Settings) -> dict[str, list[Reach]]:
    """Return the servers outside the project that each component connects to."""
    external, dumps = settings.accounting.external, settings.accounting.backup
    logs = settings.monitoring.logs
    directory = [
        Reach((port,), servers=hosts)
        for port, hosts in (settings.directory.servers() if settings.directory else {}).items()
    ]
    database = [Reach((external.port,), servers=(external.host,))] if external else []
    store, sets = _store(dumps), _store(settings.backup)
    reached = {component: list(directory) for component in _ASK_A_DIRECTORY}
    reached[c.ACCOUNTING] += [*database, *(store if dumps.restore is not None else [])]
    reached[c.DUMPS] = [*database, *store]
    reached[c.BACKUP] = [*database, *sets]
    if settings.backup and settings.backup.restore:
        reached[c.ACCOUNTING] += sets
        reached[c.CONTROLLER] = [*reached.get(c.CONTROLLER, ()), *sets]
        reached[c.JAIL_JOBS] = sets
    reached |= {component: [_API] for component in _ASK_KUBERNETES}
    reached[c.RECONCILER] += map(_server, settings.reconciler.replace_servers)
    reached[c.MONITORING] = [_API, *_watched(settings)]
    reached[c.LOGS] = [_API, *([_server(logs.endpoint)] if logs else [])]
    return reached


def _store(store: Store | None) -> list[Reach]:
    """Return the bucket of a store of backups.

    The servers are not limited, because an object store may use a different server name for each
    bucket and location.
    """
    s3 = store.s3 if store else None
    return [Reach((endpoint_port(s3.endpoint),), entities=_ANYWHERE)] if s3 else []


def _watched(settings: Settings) -> list[Reach]:
    """Return the servers that Prometheus scrapes, and those that Alertmanager notifies."""
    bundled, gpus = settings.monitoring.bundled, settings.dcgm_namespace()
    return [
        Reach((c.NODE_EXPORTER_PORT,), entities=MACHINES),
        *([Reach((DCGM_PORT,), namespaces=(gpus,))] if gpus else []),
        *([_server(bundled.webhook.get_secret_value())] if bundled.webhook else []),
        # Do not limit the servers, because only the site's Secret names the servers that receive
        # alerts.
        *([Reach(TELLING_PORTS, entities=_ANYWHERE)] if bundled.alertmanager_secret else []),
    ]


def _server(endpoint: str) -> Reach:
    return Reach((endpoint_port(endpoint),), servers=(endpoint_host(endpoint),))


def _world(refuse: tuple[str, ...]) -> Iterator[pods.Spec]:
    """Yield all addresses except those of metadata services and of `refuse`."""
    for everywhere in _EVERYWHERE:
        version = ip_network(everywhere).version
        but = sorted(cidr for cidr in {*METADATA, *refuse} if ip_network(cidr).version == version)
        yield {"cidr": everywhere, "except": but}
