"""Outputs of the stack, for operators, for `make`, and for other stacks."""

from typing import Final

import pulumi

from components import conventions as c
from components.cluster.interface import Cluster
from components.composition import Slurm
from components.settings import LocalCluster, MetalCluster, Settings
from components.slurm.login import Login

_LOOPBACK: Final = "127.0.0.1"


def exports(settings: Settings, cluster: Cluster, slurm: Slurm) -> dict[str, pulumi.Input[object]]:
    """Return the outputs by name."""
    local = settings.cluster if isinstance(settings.cluster, LocalCluster) else None
    return {
        "cluster_name": settings.cluster_name,
        "namespace": slurm.namespace,
        "nodesets": {nodeset.name: nodeset.replicas for nodeset in settings.nodesets},
        "login_host_key": slurm.login.host_key,
        "login_address": _login_address(settings, slurm.login),
        "login_port": local.ssh_port if local else slurm.login.port,
        # The contents of a kubeconfig contain a credential.
        "kubeconfig": pulumi.Output.secret(cluster.kubeconfig),
        "kubeconfig_context": cluster.context,
        **urls(settings),
        "report": slurm.report,
    }


def _login_address(settings: Settings, login: Login) -> pulumi.Input[str | None]:
    """Return the address at which users log in, or None if the stack does not know the address."""
    match settings.cluster:
        case LocalCluster():
            return _LOOPBACK
        case MetalCluster() as metal if settings.login.service == "NodePort":
            return next(one.address for one in metal.machines if not one.lost)
    return login.address


def urls(settings: Settings) -> dict[str, str]:
    """Return the URLs of the stack's own servers, for clients in the cluster."""
    servers = {"rest": (c.REST, c.REST_PORT)}
    if settings.monitoring.kind == "bundled":
        servers["prometheus"] = (c.MONITORING, c.PROMETHEUS_PORT)
        servers["alertmanager"] = (c.MONITORING, c.ALERTMANAGER_PORT)
        if settings.monitoring.bundled.grafana.enabled:
            servers["grafana"] = (c.GRAFANA, c.GRAFANA_PORT)
    return {
        f"{name}_url": f"http://{service}.{settings.namespace}.svc:{port}"
        for name, (service, port) in servers.items()
    }
