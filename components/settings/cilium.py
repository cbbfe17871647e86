"""Cilium, where the stack is to bring the cluster's network."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from components.settings.types import (
    ChartVersion,
    Cidr,
    Domain,
    InterfaceName,
    Model,
    Number,
    Port,
    Word,
    cross_field,
)


class Hubble(Model):
    """Who spoke to whom, and what was refused, as Cilium saw it."""

    enabled: bool = True
    """Every node keeps what passed it last."""
    relay: bool = False
    """One place to ask all nodes at, as `hubble observe` does."""
    ui: bool = False
    """A map of it for browsers, behind `kubectl port-forward`."""

    @model_validator(mode="after")
    def _each_has_what_it_asks(self) -> Self:
        # The chart's own rules (templates/validate.yaml).
        if self.relay and not self.enabled:
            raise cross_field("relay", "true: counts only with enabled: true; leave it out")
        if self.ui and not self.relay:
            raise cross_field("ui", "true: asks the relay; add relay: true")
        return self


class Cilium(Model):
    """Cilium as a Helm release of its official chart, in `kube-system`."""

    version: ChartVersion = "1.19.6"
    """Version of the chart, which is Cilium's own."""
    chained: Word | None = None
    """CNI network of the cloud's own plugin that Cilium is put on top of, as `aws-cni`: that one
    then gives addresses and routes, and Cilium judges. By default Cilium does all of it."""
    pod_cidr: Cidr | None = None
    """Range that Cilium gives pods their addresses from; by default the ranges that Kubernetes has
    set aside for each node, as kubeadm does."""
    routing: Literal["tunnel", "native"] = "tunnel"
    """tunnel: from node to node in VXLAN; native: the network below knows the way to pods."""
    native_cidr: Cidr | None = None
    """Range in which it knows the way, with native: what goes there keeps its pod's address."""
    node_routes: bool = False
    """With native, where all nodes are on one link: each has routes to the pods of the others."""
    mtu: Annotated[int, Field(ge=1280, le=65_520), Number] | None = None
    """Bytes of the largest packet of the network below; by default what its devices say."""
    devices: tuple[InterfaceName, ...] = ()
    """Interfaces of the machines that pods' packets take, as `eth0` or `bond+`; by default those
    with a route to the world or the node's address. On InfiniBand and RoCE machines name them, so
    that Cilium leaves those of the fast network alone."""
    kube_proxy_replacement: bool = False
    """Cilium finds what is behind Services, and no kube-proxy runs."""
    api_host: Domain | None = None
    """Where Kubernetes' API is found without its Service, with kube_proxy_replacement: a name or an
    address."""
    api_port: Port = 6443
    """Its port there."""
    bandwidth_manager: bool = False
    """Paces what pods send, and holds them to `kubernetes.io/egress-bandwidth`."""
    bbr: bool = False
    """Pods' TCP by BBR, for users who are far away; from Linux 5.18 on."""
    encryption: Literal["none", "wireguard", "ipsec"] = "none"
    """What goes from pod to pod on another node is encrypted."""
    ipsec_secret: Domain | None = None
    """Secret of `kube-system` whose entry `keys` is the key, with ipsec; Cilium's documentation
    tells its form."""
    host_firewall: bool = False
    """CiliumClusterwideNetworkPolicies count for the machines themselves too."""
    hubble: Hubble = Field(default_factory=Hubble)

    @model_validator(mode="after")
    def _chained_leaves_the_rest_to_the_other(self) -> Self:
        # Cilium's documentation, "CNI Chaining": addresses and routes are the other plugin's;
        # IPsec is not supported on top of one.
        if not self.chained:
            return self
        for key in ("routing", "native_cidr", "node_routes", "pod_cidr"):
            if key in self.model_fields_set:
                raise cross_field(
                    key, f"{getattr(self, key)}: is the matter of '{self.chained}'; leave it out"
                )
        if self.encryption == "ipsec":
            raise cross_field("encryption", "ipsec: not with chained; expected wireguard or none")
        if self.bbr:
            raise cross_field("bbr", "true: not with chained; leave it out")
        return self

    @model_validator(mode="after")
    def _native_routing_knows_its_range(self) -> Self:
        if self.routing == "native" and not self.native_cidr:
            raise cross_field("native_cidr", "is required with routing: native; add pods' range")
        for key in ("native_cidr", "node_routes"):
            if self.routing != "native" and getattr(self, key):
                raise cross_field(
                    key, f"{getattr(self, key)}: counts only with routing: native; leave it out"
                )
        return self

    @model_validator(mode="after")
    def _the_api_is_found_without_its_service(self) -> Self:
        if self.kube_proxy_replacement and not self.api_host:
            raise cross_field("api_host", "is required with kube_proxy_replacement; add it")
        for key in ("api_host", "api_port"):
            if key in self.model_fields_set and not self.kube_proxy_replacement:
                raise cross_field(
                    key,
                    f"{getattr(self, key)}: counts only with kube_proxy_replacement; leave it out",
                )
        return self

    @model_validator(mode="after")
    def _bbr_has_what_it_needs(self) -> Self:
        # "Bandwidth Manager" and "Tuning Guide": it needs packets that keep their socket up to the
        # device (eBPF host routing), which kube-proxy's rules and IPsec both stand in the way of.
        if not self.bbr:
            return self
        for key in ("bandwidth_manager", "kube_proxy_replacement"):
            if not getattr(self, key):
                raise cross_field("bbr", f"true: needs {key}; add {key}: true")
        if self.encryption == "ipsec":
            raise cross_field("bbr", "true: not with encryption: ipsec; expected wireguard or none")
        return self

    @model_validator(mode="after")
    def _encryption_has_its_key(self) -> Self:
        if self.encryption == "ipsec" and not self.ipsec_secret:
            raise cross_field("ipsec_secret", "is required with encryption: ipsec; add it")
        if self.ipsec_secret and self.encryption != "ipsec":
            raise cross_field(
                "ipsec_secret", f"'{self.ipsec_secret}': counts only with encryption: ipsec"
            )
        if self.host_firewall and self.encryption == "ipsec":
            # "IPsec Transparent Encryption", limitations.
            raise cross_field("host_firewall", "true: not with encryption: ipsec; leave it out")
        return self
