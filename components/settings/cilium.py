"""Settings of Cilium, if the stack installs it as the cluster's network."""

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
    """Cilium's records of connections, including refused ones."""

    enabled: bool = True
    """Keep each node's latest flows, for `hubble observe`."""
    relay: bool = False
    """Run one service that queries all nodes, for `hubble observe`."""
    ui: bool = False
    """Run a map of the flows for browsers, behind `kubectl port-forward`; requires `relay`."""

    @model_validator(mode="after")
    def _each_has_its_requirements(self) -> Self:
        # The chart's own rules (templates/validate.yaml).
        if self.relay and not self.enabled:
            raise cross_field("relay", "true: has no effect without enabled: true; remove it")
        if self.ui and not self.relay:
            raise cross_field("ui", "true: requires the relay; add relay: true")
        return self


class Cilium(Model):
    """Cilium as a Helm release of its official chart, in `kube-system`."""

    version: ChartVersion = "1.19.6"
    """Version of the chart, which is Cilium's own."""
    chained: Word | None = None
    """CNI network of the cloud's own plugin that Cilium runs on top of, as `aws-cni`. That plugin
    then assigns addresses and routes, and Cilium enforces policies. By default Cilium does
    everything."""
    pod_cidr: Cidr | None = None
    """Address range of pods; by default those that Kubernetes has set aside for each node, as with
    kubeadm."""
    routing: Literal["tunnel", "native"] = "tunnel"
    """tunnel: from node to node in VXLAN; native: the network below routes to pods."""
    native_cidr: Cidr | None = None
    """Range that the network below routes, for native: destinations there see a pod's own
    address."""
    node_routes: bool = False
    """For native, if all nodes are on one link: give each node routes to the pods of the others."""
    mtu: Annotated[int, Field(ge=1280, le=65_520), Number] | None = None
    """Size of the largest packet of the network below in bytes; by default what its devices say."""
    devices: tuple[InterfaceName, ...] = ()
    """Interfaces of the machines that pods' packets use, as `eth0` or `bond+`; by default those
    with a default route or the node's address. Set it on machines with InfiniBand or RoCE, so that
    Cilium does not use the interfaces of the fast network."""
    kube_proxy_replacement: bool = False
    """Let Cilium resolve Services, without kube-proxy."""
    api_host: Domain | None = None
    """Name or address of Kubernetes' API without its Service, for kube_proxy_replacement."""
    api_port: Port = 6443
    """Port of the API there."""
    bandwidth_manager: bool = False
    """Pace what pods send, and enforce `kubernetes.io/egress-bandwidth`."""
    bbr: bool = False
    """Use BBR for pods' TCP, for users far away; requires `bandwidth_manager`,
    `kube_proxy_replacement` and Linux 5.18."""
    encryption: Literal["none", "wireguard", "ipsec"] = "none"
    """Encryption between pods on different nodes."""
    ipsec_secret: Domain | None = None
    """Secret of `kube-system` with the key in its entry `keys`, for ipsec; Cilium's documentation
    describes the format."""
    host_firewall: bool = False
    """Apply CiliumClusterwideNetworkPolicies to the machines too."""
    hubble: Hubble = Field(default_factory=Hubble)

    @model_validator(mode="after")
    def _chained_leaves_the_rest_to_the_other(self) -> Self:
        # The other plugin assigns addresses and routes. Cilium does not support IPsec on top of one
        # (Cilium's documentation, "CNI Chaining").
        if not self.chained:
            return self
        for key in ("routing", "native_cidr", "node_routes", "pod_cidr"):
            if key in self.model_fields_set:
                raise cross_field(
                    key,
                    f"{getattr(self, key)}: the plugin of '{self.chained}' controls it; remove it",
                )
        if self.encryption == "ipsec":
            raise cross_field(
                "encryption",
                "ipsec: cannot be combined with chained; expected wireguard or none",
            )
        if self.bbr:
            raise cross_field("bbr", "true: cannot be combined with chained; remove it")
        return self

    @model_validator(mode="after")
    def _native_routing_knows_its_range(self) -> Self:
        if self.routing == "native" and not self.native_cidr:
            raise cross_field(
                "native_cidr", "is required with routing: native; add the address range of pods"
            )
        for key in ("native_cidr", "node_routes"):
            if self.routing != "native" and getattr(self, key):
                raise cross_field(
                    key,
                    f"{getattr(self, key)}: has no effect without routing: native; remove it",
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
                    f"{getattr(self, key)}: has no effect without kube_proxy_replacement; "
                    "remove it",
                )
        return self

    @model_validator(mode="after")
    def _bbr_has_what_it_needs(self) -> Self:
        # BBR requires that packets keep their socket up to the device (eBPF host routing).
        # kube-proxy's rules and IPsec prevent that (Cilium's documentation, "Bandwidth Manager" and
        # "Tuning Guide").
        if not self.bbr:
            return self
        for key in ("bandwidth_manager", "kube_proxy_replacement"):
            if not getattr(self, key):
                raise cross_field("bbr", f"true: requires {key}; add {key}: true")
        if self.encryption == "ipsec":
            raise cross_field(
                "bbr",
                "true: cannot be combined with encryption: ipsec; expected wireguard or none",
            )
        return self

    @model_validator(mode="after")
    def _encryption_has_its_key(self) -> Self:
        if self.encryption == "ipsec" and not self.ipsec_secret:
            raise cross_field("ipsec_secret", "is required with encryption: ipsec; add it")
        if self.ipsec_secret and self.encryption != "ipsec":
            raise cross_field(
                "ipsec_secret",
                f"'{self.ipsec_secret}': has no effect without encryption: ipsec; remove it",
            )
        if self.host_firewall and self.encryption == "ipsec":
            # Cilium's documentation, "IPsec Transparent Encryption", limitations.
            raise cross_field(
                "host_firewall", "true: cannot be combined with encryption: ipsec; remove it"
            )
        return self
