"""Install Cilium, the cluster's network plugin, with its official Helm chart.

For the names and the meaning of the values, see the chart's values.yaml.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components.settings import Cilium as CiliumSettings
from components.settings import Network as NetworkSettings

REPOSITORY = "https://helm.cilium.io"
NAMESPACE = "kube-system"
_PATIENCE = 900
"""Time limit in seconds for Cilium to become ready. It is long, because each machine pulls half a
gigabyte of images."""


def values(settings: CiliumSettings, guard: bool) -> dict[str, Any]:
    """Return the values that differ from the chart's defaults.

    `guard` is true if pods have their own packet filter. The filter must see the address of a
    Service before Cilium replaces it with a pod's address.
    """
    return {
        # Restart Cilium's pods if its configuration changes, because they read it only at their
        # start.
        "rollOutCiliumPods": True,
        "operator": {"rollOutPods": True},
        "hubble": {
            "enabled": settings.hubble.enabled,
            "relay": {"enabled": settings.hubble.relay},
            "ui": {"enabled": settings.hubble.ui},
        },
        "bandwidthManager": {"enabled": settings.bandwidth_manager, "bbr": settings.bbr},
        "hostFirewall": {"enabled": settings.host_firewall},
        **(_chained(settings.chained) if settings.chained else _routing(settings)),
        **({"MTU": settings.mtu} if settings.mtu else {}),
        **({"devices": list(settings.devices)} if settings.devices else {}),
        **_services(settings, guard),
        **_encryption(settings),
    }


def _chained(network: str) -> dict[str, Any]:
    # Cilium can run together with another network plugin (chaining). Among the supported plugins,
    # it has a special mode only for Amazon's.
    aws = network == c.AWS_CNI
    by = {"chainingMode": network} if aws else {"chainingTarget": network}
    return {
        # Keep the other plugin's configuration. Turn off masquerading (source address translation),
        # which the other plugin's routes do not need.
        "cni": {**by, "exclusive": False, "enableRouteMTUForCNIChaining": True},
        "enableIPv4Masquerade": False,
        "routingMode": "native",
        **({"endpointRoutes": {"enabled": True}} if aws else {}),
    }


def _routing(settings: CiliumSettings) -> dict[str, Any]:
    addresses: dict[str, Any] = {"mode": "kubernetes"}
    if settings.pod_cidr:
        addresses = {
            "mode": "cluster-pool",
            "operator": {"clusterPoolIPv4PodCIDRList": [settings.pod_cidr]},
        }
    if settings.routing == "tunnel":
        return {"ipam": addresses, "routingMode": "tunnel", "tunnelProtocol": "vxlan"}
    return {
        "ipam": addresses,
        "routingMode": "native",
        "ipv4NativeRoutingCIDR": settings.native_cidr,
        "autoDirectNodeRoutes": settings.node_routes,
    }


def _services(settings: CiliumSettings, guard: bool) -> dict[str, Any]:
    if not settings.kube_proxy_replacement:
        return {"kubeProxyReplacement": False}
    return {
        "kubeProxyReplacement": True,
        "k8sServiceHost": settings.api_host,
        "k8sServicePort": settings.api_port,
        **({"socketLB": {"hostNamespaceOnly": True}} if guard else {}),
        # The congestion control bbr works only if Cilium routes packets with eBPF. This requires
        # that Cilium also masquerades (translates source addresses) with eBPF.
        **({"bpf": {"masquerade": True}} if settings.bbr else {}),
    }


def _encryption(settings: CiliumSettings) -> dict[str, Any]:
    if settings.encryption == "none":
        return {}
    key = {"ipsec": {"secretName": settings.ipsec_secret}} if settings.ipsec_secret else {}
    return {"encryption": {"enabled": True, "type": settings.encryption, **key}}


@dataclass(frozen=True)
class CiliumArgs:
    settings: CiliumSettings
    guard: bool
    """Whether pods have their own packet filters."""
    machines: Sequence[pulumi.Resource]
    """Machines that the deploy creates. Cilium is installed after them, because its pods run on
    them."""


class Cilium(pulumi.ComponentResource):
    """Cilium on the cluster. The component is ready when all pods of Cilium are ready."""

    release: k8s.helm.v3.Release

    def __init__(
        self, name: str, args: CiliumArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("cilium", "Cilium"), name, None, opts)
        self.release = k8s.helm.v3.Release(
            f"{name}-release",
            name="cilium",
            chart="cilium",
            repository_opts={"repo": REPOSITORY},
            version=args.settings.version,
            namespace=NAMESPACE,
            values=values(args.settings, args.guard),
            timeout=_PATIENCE,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.machines]),
        )
        self.register_outputs({})


def install(
    name: str,
    settings: NetworkSettings,
    machines: Sequence[pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> tuple[k8s.helm.v3.Release, ...]:
    """Install Cilium if the settings request it. Return the resources that must exist before all
    pods.

    The resources in `machines` must not wait for a pod network: on the site's own machines, only
    Cilium provides this network.
    """
    if settings.cilium is None:
        return ()
    args = CiliumArgs(settings.cilium, settings.guard, machines)
    return (Cilium(name, args, opts).release,)
