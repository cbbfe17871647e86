"""Render the rules of the module `flows` as NetworkPolicies, and create both kinds of network
policies."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.network.flows import DNS_PORT, Rules

_CILIUM_API = "cilium.io/v2"


def policies(rules: tuple[Rules, ...]) -> dict[str, pods.Spec]:
    """Return the specs of NetworkPolicies by name.

    The policy `default` selects all pods of the project and allows nothing. Pods that no other
    policy selects, such as those of the Job that fills the jail, therefore have no network.
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
        # Allow DNS at all addresses: the cluster's DNS server may be a pod, or a process of the
        # machine.
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
    """Select pods of other namespaces, by the label that Kubernetes sets on each namespace."""
    either = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}
    return [{"namespaceSelector": {"matchExpressions": [either]}}]


def _tcp(port: int | None) -> pods.Spec:
    return {"ports": [{"protocol": "TCP", "port": port}]} if port else {}


@dataclass(frozen=True)
class NetworkArgs:
    namespace: pulumi.Input[str]
    policies: Mapping[str, pods.Spec]
    """Specs of NetworkPolicies by name."""
    cilium_policies: Mapping[str, pods.Spec]
    """Specs of CiliumNetworkPolicies by name."""


class Network(pulumi.ComponentResource):
    """Network policies for the pods of the Slurm layer."""

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
