"""Who may talk to whom: NetworkPolicies, and a packet filter in the pods that users are in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import Network as NetworkSettings

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
"""TCP ports that users reach nowhere: whose addresses are not known beforehand."""
_API_PORTS = (443, 6443)
"""TCP ports of Kubernetes' API: of its Service, and of the machines behind that, by which some
network plugins judge."""
_DNS_PORT = 53
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


# --- Policies ------------------------------------------------------------------------------------


def policies(
    refuse: tuple[str, ...] = (),
    directory: tuple[int, ...] = (),
    database: tuple[int, ...] = (),
    store: tuple[int, ...] = (),
    restores: bool = False,
    scrapers: tuple[str, ...] = (),
    watched: tuple[int, ...] = (),
    collector: tuple[int, ...] = (),
) -> dict[str, pods.Spec]:
    """Specs of NetworkPolicies by name; users reach the world but for metadata and `refuse`.

    `directory`, `database` and `store` are the TCP ports at which a directory of users, a database
    that is not ours, and a store of its dumps are asked, wherever they are; the last by slurmdbd's
    pod too where it `restores`. Pods of the namespaces `scrapers` may scrape; our own Prometheus
    and Alertmanager ask, and tell, whoever is at the TCP ports `watched`; the daemons' lines go to
    the port `collector`.

    The one called `default` is of all our pods and allows nothing: whom no other concerns, as the
    Jobs that fill the jail, has no network.
    """
    components = {component for flow in FLOWS for component in (*flow.by, *flow.to)} | {c.REBOOTER}
    asked = {component: list(directory) for component in _ASK_A_DIRECTORY}
    asked[c.ACCOUNTING] += [*database, *(store if restores else ())]
    asked[c.BACKUP] = [*database, *store]
    asked |= {component: list(_API_PORTS) for component in (c.RECONCILER, c.REBOOTER)}
    asked[c.MONITORING] = [*_API_PORTS, *watched]
    asked[c.LOGS] = [*_API_PORTS, *collector]
    chosen = {
        name: _policy(name, refuse, asked.get(name, []), scrapers) for name in sorted(components)
    }
    return {"default": _spec(pods.selector(), [], []), **chosen}


def _policy(
    component: str, refuse: tuple[str, ...], outside: list[int], scrapers: tuple[str, ...]
) -> pods.Spec:
    ingress: list[pods.Spec] = [
        {"from": _peers(flow.by), **_tcp(flow.port)} for flow in FLOWS if component in flow.to
    ]
    egress: list[pods.Spec] = [
        {"to": _peers(flow.to), **_tcp(flow.port)} for flow in FLOWS if component in flow.by
    ]
    # Whom lines are sent to is no pod of ours, and has a name all the same.
    if egress or component == c.LOGS:
        # Clusters have their DNS in many places, those of the machine itself included.
        ports = [{"protocol": protocol, "port": _DNS_PORT} for protocol in ("TCP", "UDP")]
        egress.append({"ports": ports})
    if component in _NODES:
        egress.append({"to": list(_world(refuse))})
    if outside:
        egress.append({"ports": [{"protocol": "TCP", "port": port} for port in outside]})
    if component == c.LOGIN:
        ingress.append(_tcp(c.SSHD_PORT))
    if component in c.SCRAPED and scrapers:
        ingress.append({"from": _namespaces(scrapers), **_tcp(c.SCRAPED[component])})
    return _spec(pods.selector(component), ingress, egress)


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


def _world(refuse: tuple[str, ...]) -> Iterator[pods.Spec]:
    """Every address but metadata's and those of `refuse`."""
    for everywhere in _EVERYWHERE:
        version = ip_network(everywhere).version
        but = sorted(cidr for cidr in {*METADATA, *refuse} if ip_network(cidr).version == version)
        yield {"ipBlock": {"cidr": everywhere, "except": but}}


@dataclass(frozen=True)
class NetworkArgs:
    namespace: pulumi.Input[str]
    policies: Mapping[str, pods.Spec]
    """Specs of NetworkPolicies by name."""


class Network(pulumi.ComponentResource):
    """NetworkPolicies over the pods of the Slurm layer."""

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
        self.register_outputs({})


# --- The guard -----------------------------------------------------------------------------------


def guard(settings: NetworkSettings, images: pods.Images, cluster_domain: str) -> list[pods.Spec]:
    """What goes before all other init containers of a pod that users are in.

    It alone has the right to the pod's packet filter, and a pod whose filter cannot be set does not
    start. See images/guard.
    """
    if not settings.guard:
        return []
    environment = {
        "API_SERVER": f"kubernetes.default.svc.{cluster_domain}",
        "REFUSED_ADDRESSES": " ".join((*METADATA, *settings.refuse)),
        "REFUSED_PORTS": " ".join(map(str, _GUARDED_PORTS)),
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
