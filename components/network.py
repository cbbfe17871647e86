"""Who may talk to whom: NetworkPolicies, and a packet filter in the pods that users are in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.monitoringconf import DCGM_PORT, TELLING_PORTS
from components.settings import Settings, endpoint_host, endpoint_port

METADATA = (
    "169.254.0.0/16",  # of nearly every cloud, and of agents that hand credentials to pods
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
"""Where clouds tell a machine about itself, its credentials included."""

_GUARDED_PORTS = (
    6443,  # Kubernetes' API, where a machine of the cluster itself serves it
    10250,  # kubelet
    10255,  # kubelet, read-only
    *c.SCRAPED.values(),  # metrics, which tell of all users' jobs
    c.NODE_EXPORTER_PORT,
    c.PROMETHEUS_PORT,
    c.ALERTMANAGER_PORT,
    c.GRAFANA_PORT,
)
"""Ports that users reach nowhere: whose addresses are not known beforehand."""
STORAGE_PORTS = (
    111,  # rpcbind, by which NFSv3 finds its servers
    *(port for first, last in c.LUSTRE_PORTS for port in range(first, last + 1)),
    c.NFS_PORT,
    20048,  # mountd of NFSv3
)
"""Ports of file systems that trust the uid that a client sends. Machines mount them, not users."""
API_PORTS = (443, 6443)
"""TCP ports of Kubernetes' API: of its Service, and of the machines behind that, by which some
network plugins judge."""
DNS_PORT = 53
MACHINES = ("host", "remote-node")
"""Cilium's words for Kubernetes nodes: the pod's own, and the others."""
_CILIUM_API = "cilium.io/v2"
_EVERYWHERE = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True)
class Flow:
    """Pods that open connections to others, by component."""

    by: tuple[str, ...]
    to: tuple[str, ...]
    port: int | None = None
    """TCP port; by default every port of every protocol."""


_NODES = (c.LOGIN, c.WORKER)
"""Where users are."""
_ASK_A_DIRECTORY = (c.ACCOUNTING, c.ACCOUNTS, c.CONTROLLER, c.EXPORTER, c.REST, *_NODES)
"""Where an sssd is beside those who must know a directory's people."""
FLOWS = (
    Flow(
        (c.ACCOUNTS, c.CONFIG, c.CONFIG_CHECK, c.EXPORTER, c.REST, *_NODES),
        (c.CONTROLLER,),
        c.SLURMCTLD_PORT,
    ),
    # slurmd has a port of its own; srun, salloc, sackd and MPI listen wherever there is room.
    Flow((c.CONTROLLER, *_NODES), _NODES),
    Flow((c.LONG_CHECK, c.LONG_CHECKS, c.RECONCILER, *_NODES), (c.REST,), c.REST_PORT),
    Flow((c.ACCOUNTS, c.CONTROLLER, c.REST, *_NODES), (c.ACCOUNTING,), c.SLURMDBD_PORT),
    # slurmdbd tells slurmctld when somebody changes an account.
    Flow((c.ACCOUNTING,), (c.CONTROLLER,), c.SLURMCTLD_PORT),
    Flow((c.ACCOUNTING, c.BACKUP), (c.DATABASE,), c.MARIADB_PORT),
    *(Flow((c.MONITORING,), (component,), port) for component, port in c.SCRAPED.items()),
    Flow((c.GRAFANA,), (c.MONITORING,), c.PROMETHEUS_PORT),
)
"""All that goes from pod to pod. What is not here is refused, both where it leaves and arrives."""


# --- Who may what --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """Somebody who is no pod of ours, and the TCP ports at which pods of ours ask.

    NetworkPolicies do not know where that is, and go by the ports alone. Cilium does.
    """

    ports: tuple[int, ...]
    servers: tuple[str, ...] = ()
    """Names or addresses."""
    namespaces: tuple[str, ...] = ()
    """All pods of these."""
    entities: tuple[str, ...] = ()
    """What Cilium has a word for."""


@dataclass(frozen=True)
class Rules:
    """What the pods of one component may, and nothing besides."""

    component: str
    asked: tuple[Flow, ...]
    """Who may open connections to them."""
    asks: tuple[Flow, ...]
    """To whom they may."""
    reaches: tuple[Reach, ...]
    dns: bool
    """They look for others by name."""
    world: tuple[pods.Spec, ...]
    """Ranges of addresses outside, as `cidr` and what of it is left out (`except`)."""
    names: tuple[str, ...] | None
    """Names in place of all of that world."""
    open_port: int | None
    """TCP port at which anybody may ask."""
    machines_port: int | None
    """TCP port at which Kubernetes nodes may ask."""
    machines: tuple[str, ...]
    """Ranges of their addresses, by which NetworkPolicies know them. Cilium does without."""
    scrapers: tuple[str, ...]
    """Namespaces whose pods may ask for metrics."""


_ANYWHERE = ("all",)
_API = Reach(API_PORTS, entities=("kube-apiserver",))


def rules(settings: Settings) -> tuple[Rules, ...]:
    """Of each component; both kinds of policies are rendered from these."""
    components = {component for flow in FLOWS for component in (*flow.by, *flow.to)} | {c.REBOOTER}
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
        # Whom lines are sent to is no pod of ours, and has a name all the same.
        dns=bool(asks) or component == c.LOGS,
        world=tuple(_world(settings.network.refuse)) if users else (),
        names=settings.network.names if users else None,
        open_port=c.SSHD_PORT if component == c.LOGIN else None,
        machines_port=c.NFS_PORT if served else None,
        machines=served.machines if served else (),
        scrapers=settings.monitoring.scrape_from if component in c.SCRAPED else (),
    )


def _reached(settings: Settings) -> dict[str, list[Reach]]:
    """Whom each component asks that is no pod of ours."""
    external, dumps = settings.accounting.external, settings.accounting.backup
    logs = settings.monitoring.logs
    directory = [
        Reach((port,), servers=hosts)
        for port, hosts in (settings.directory.servers() if settings.directory else {}).items()
    ]
    database = [Reach((external.port,), servers=(external.host,))] if external else []
    # An object store answers under as many names as it has buckets and places.
    store = [Reach((endpoint_port(dumps.s3.endpoint),), entities=_ANYWHERE)] if dumps.s3 else []
    reached = {component: list(directory) for component in _ASK_A_DIRECTORY}
    reached[c.ACCOUNTING] += [*database, *(store if dumps.restore is not None else [])]
    reached[c.BACKUP] = [*database, *store]
    reached |= {component: [_API] for component in (c.RECONCILER, c.REBOOTER, c.SNAPSHOTS)}
    reached[c.MONITORING] = [_API, *_watched(settings)]
    reached[c.LOGS] = [_API, *([_server(logs.endpoint)] if logs else [])]
    return reached


def _watched(settings: Settings) -> list[Reach]:
    """Whom Prometheus asks, and Alertmanager tells."""
    bundled, gpus = settings.monitoring.bundled, settings.dcgm_namespace()
    return [
        Reach((c.NODE_EXPORTER_PORT,), entities=MACHINES),
        *([Reach((DCGM_PORT,), namespaces=(gpus,))] if gpus else []),
        *([_server(bundled.webhook)] if bundled.webhook else []),
        # Whom a configuration of the operator's own tells is written in a Secret.
        *([Reach(TELLING_PORTS, entities=_ANYWHERE)] if bundled.alertmanager_secret else []),
    ]


def _server(endpoint: str) -> Reach:
    return Reach((endpoint_port(endpoint),), servers=(endpoint_host(endpoint),))


def _world(refuse: tuple[str, ...]) -> Iterator[pods.Spec]:
    """Every address but metadata's and those of `refuse`."""
    for everywhere in _EVERYWHERE:
        version = ip_network(everywhere).version
        but = sorted(cidr for cidr in {*METADATA, *refuse} if ip_network(cidr).version == version)
        yield {"cidr": everywhere, "except": but}


# --- NetworkPolicies -----------------------------------------------------------------------------


def policies(rules: tuple[Rules, ...]) -> dict[str, pods.Spec]:
    """Specs of NetworkPolicies by name.

    The one called `default` is of all our pods and allows nothing: whom no other concerns, as the
    Jobs that fill the jail, has no network.
    """
    return {
        "default": _spec(pods.selector(), [], []),
        **{each.component: _policy(each) for each in rules},
    }


def _policy(rules: Rules) -> pods.Spec:
    ingress: list[pods.Spec] = [
        {"from": _peers(flow.by), **_tcp(flow.port)} for flow in rules.asked
    ]
    egress: list[pods.Spec] = [{"to": _peers(flow.to), **_tcp(flow.port)} for flow in rules.asks]
    if rules.dns:
        # Clusters have their DNS in many places, those of the machine itself included.
        ports = [{"protocol": protocol, "port": DNS_PORT} for protocol in ("TCP", "UDP")]
        egress.append({"ports": ports})
    if rules.world:
        egress.append({"to": [{"ipBlock": block} for block in rules.world]})
    if rules.reaches:
        reached = [port for reach in rules.reaches for port in reach.ports]
        egress.append({"ports": [{"protocol": "TCP", "port": port} for port in reached]})
    if rules.open_port:
        ingress.append(_tcp(rules.open_port))
    if rules.machines:
        blocks = [{"ipBlock": {"cidr": cidr}} for cidr in rules.machines]
        ingress.append({"from": blocks, **_tcp(rules.machines_port)})
    if rules.scrapers:
        ingress.append({"from": _namespaces(rules.scrapers), **_tcp(c.SCRAPED[rules.component])})
    return _spec(pods.selector(rules.component), ingress, egress)


def _spec(selector: pods.Spec, ingress: list[pods.Spec], egress: list[pods.Spec]) -> pods.Spec:
    return {
        "podSelector": selector,
        "policyTypes": ["Egress", "Ingress"],
        **({"ingress": ingress} if ingress else {}),
        **({"egress": egress} if egress else {}),
    }


def _peers(components: tuple[str, ...]) -> list[pods.Spec]:
    return [{"podSelector": pods.selector(*components)}]


def _namespaces(names: tuple[str, ...]) -> list[pods.Spec]:
    """Pods of other namespaces, by the label that Kubernetes itself gives each of these."""
    either = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}
    return [{"namespaceSelector": {"matchExpressions": [either]}}]


def _tcp(port: int | None) -> pods.Spec:
    return {"ports": [{"protocol": "TCP", "port": port}]} if port else {}


# --- The component -------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkArgs:
    namespace: pulumi.Input[str]
    policies: Mapping[str, pods.Spec]
    """Specs of NetworkPolicies by name."""
    cilium_policies: Mapping[str, pods.Spec]
    """Specs of CiliumNetworkPolicies by name."""


class Network(pulumi.ComponentResource):
    """Policies over the pods of the Slurm layer."""

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("network", "Network"), name, None, opts)
        for policy, spec in args.policies.items():
            k8s.networking.v1.NetworkPolicy(
                f"{name}-{policy}",
                metadata={"name": policy, "namespace": args.namespace},
                spec=spec,
                opts=pulumi.ResourceOptions(parent=self),
            )
        for policy, spec in args.cilium_policies.items():
            k8s.apiextensions.CustomResource(
                f"{name}-cilium-{policy}",
                api_version=_CILIUM_API,
                kind="CiliumNetworkPolicy",
                metadata={"name": policy, "namespace": args.namespace},
                spec=spec,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


# --- The guard -----------------------------------------------------------------------------------


def guard(settings: Settings, images: pods.Images) -> list[pods.Spec]:
    """What goes before all other init containers of a pod that users are in.

    It alone has the right to the pod's packet filter, and a pod whose filter cannot be set does not
    start. See images/guard.
    """
    if not settings.network.guard:
        return []
    environment = {
        "API_SERVER": f"kubernetes.default.svc.{settings.cluster.domain}",
        "REFUSED_ADDRESSES": " ".join((*METADATA, *settings.network.refuse)),
        "REFUSED_PORTS": " ".join(map(str, (*_GUARDED_PORTS, *STORAGE_PORTS))),
    }
    container = {
        "name": "guard",
        **pods.image("guard", images),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        **pods.security("NET_ADMIN", user=c.NOBODY_ID),
        **pods.requests("10m", "16Mi"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return [container]
