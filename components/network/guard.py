"""The guard: an init container that sets a packet filter in the pods of users; see
docs/network.md."""

from components import conventions as c
from components import pods
from components.network.flows import METADATA, STORAGE_PORTS
from components.settings import Settings

_GUARDED_PORTS = (
    6443,  # Kubernetes' API, if a machine of the cluster serves it
    10250,  # kubelet
    10255,  # kubelet, read-only
    *c.SCRAPED.values(),  # metrics, which show all users' jobs
    c.NODE_EXPORTER_PORT,
    c.PROMETHEUS_PORT,
    c.ALERTMANAGER_PORT,
    c.GRAFANA_PORT,
    c.BRIDGE_PORT,  # the bridge, which must answer nodes
    c.BRIDGE_WEBHOOK_PORT,  # the bridge, without which Kubernetes refuses new pods
    c.ON_DEMAND_PORT,  # agent of nodes on demand, which queries Slurm after each connection
)
"""Ports that the filter blocks at all addresses, because the addresses of these servers are not
known in advance."""


def guard(settings: Settings, images: pods.Images) -> list[pods.Spec]:
    """Return the init container that runs before all others in the pods of users.

    Only this container has the right to change the pod's packet filter. If the container cannot set
    the filter, the pod does not start. See images/guard.
    """
    if not settings.network.guard:
        return []
    environment = {
        "API_SERVER": f"kubernetes.default.svc.{settings.cluster.domain}",
        "REFUSED_ADDRESSES": " ".join((*METADATA, *settings.network.refuse)),
        "REFUSED_PORTS": " ".join(map(str, (*_GUARDED_PORTS, *STORAGE_PORTS))),
    }
    container = {
        "name": c.GUARD,
        **pods.image("guard", images),
        "env": pods.environment(environment),
        **pods.security("NET_ADMIN", user=c.NOBODY_ID),
        **pods.requests("10m", "16Mi"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return [container]
