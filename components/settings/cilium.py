"""Settings of Cilium, if the stack installs it as the cluster's network."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from components.settings.types import (
    ChartVersion,
    Cidr,
    Host,
    InterfaceName,
    Model,
    Number,
    Port,
    SecretName,
    Word,
    cross_field,
)


class Hubble(Model):
    """Cilium's records of connections, including refused ones."""

    enabled: bool = True
    """Keep records of each node's latest connections (flows), for `hubble observe`."""
    relay: bool = False
    """Run a service through which `hubble observe` queries all nodes."""
    ui: bool = False
    """Run Hubble's web page (map of flows) for `kubectl port-forward`; requires `relay`."""

    @model_validator(mode="after")
    def _each_has_its_requirements(self) -> Self:
        # The chart has the same rules (source: templates/validate.yaml).
        if self.relay and not self.enabled:
            raise cross_field(
                "relay",
                "true: has no effect, because hubble.enabled is false; remove this setting, or "
                "remove 'enabled: false'",
            )
        if self.ui and not self.relay:
            raise cross_field(
                "ui",
                "true: Hubble's web page gets its data from the relay; add 'relay: true' in the "
                "same section",
            )
        return self


class Cilium(Model):
    """Cilium as a Helm release of its official chart, in `kube-system`."""

    version: ChartVersion = "1.19.6"
    """Version of the chart, which is also Cilium's version."""
    chained: Word | None = None
    """Name of the cloud's own network plugin (its CNI network), such as `aws-cni`, if Cilium runs
    on top of this plugin. The plugin then assigns addresses and routes, and Cilium enforces
    policies. By default, Cilium does everything."""
    pod_cidr: Cidr | None = None
    """Address range of pods. By default, Cilium uses the range that Kubernetes assigns to each
    node, for example with kubeadm."""
    routing: Literal["tunnel", "native"] = "tunnel"
    """tunnel: VXLAN between nodes; native: the underlying network routes to pods."""
    native_cidr: Cidr | None = None
    """For native routing: address range that the underlying network routes. Destinations in this
    range see a pod's own address."""
    node_routes: bool = False
    """For native routing, if all nodes are in one layer-2 network: each node adds routes to the
    pods of the other nodes."""
    mtu: Annotated[int, Field(ge=1280, le=65_520), Number] | None = None
    """MTU of the underlying network in bytes; by default the MTU of its devices."""
    devices: tuple[InterfaceName, ...] = ()
    """Network interfaces for pods' traffic, such as `eth0` or `bond+`; by default those with a
    default route or the node's address. Set this key on machines with InfiniBand or RoCE, so that
    Cilium does not use the interfaces of the fast network."""
    kube_proxy_replacement: bool = False
    """Let Cilium resolve Services, without kube-proxy."""
    api_host: Host | None = None
    """Host name or address at which Cilium reaches the Kubernetes API, instead of the Service of
    the API. Required with kube_proxy_replacement."""
    api_port: Port = 6443
    """Port of the API at `api_host`."""
    bandwidth_manager: bool = False
    """Pace the traffic that pods send, and enforce `kubernetes.io/egress-bandwidth`."""
    bbr: bool = False
    """Use BBR for pods' TCP connections, which helps distant clients; requires `bandwidth_manager`,
    `kube_proxy_replacement` and Linux 5.18."""
    encryption: Literal["none", "wireguard", "ipsec"] = "none"
    """Encryption between pods on different nodes."""
    ipsec_secret: SecretName | None = None
    """Secret in `kube-system` with the IPsec key in its entry `keys`; Cilium's documentation
    describes the format."""
    host_firewall: bool = False
    """Apply CiliumClusterwideNetworkPolicies to the machines too."""
    hubble: Hubble = Field(default_factory=Hubble)

    @model_validator(mode="after")
    def _chained_leaves_the_rest_to_the_other_plugin(self) -> Self:
        # The cloud's plugin assigns addresses and routes. Cilium does not support IPsec on top of
        # another plugin (source: Cilium's documentation, "CNI Chaining").
        if not self.chained:
            return self
        for key in ("routing", "native_cidr", "node_routes", "pod_cidr"):
            if key in self.model_fields_set:
                raise cross_field(
                    key,
                    f"{getattr(self, key)}: has no effect, because the network plugin in "
                    f"'chained', '{self.chained}', assigns addresses and routes; remove '{key}'",
                )
        if self.encryption == "ipsec":
            raise cross_field(
                "encryption",
                "ipsec: Cilium cannot use IPsec on top of the plugin in 'chained'; set "
                "'encryption' to 'wireguard' or 'none'",
            )
        if self.bbr:
            raise cross_field(
                "bbr", "true: Cilium cannot use BBR on top of the plugin in 'chained'; remove 'bbr'"
            )
        return self

    @model_validator(mode="after")
    def _native_routing_knows_its_range(self) -> Self:
        if self.routing == "native" and not self.native_cidr:
            raise cross_field(
                "native_cidr",
                "is required, because 'routing' is 'native'; add the address range that the "
                "underlying network routes to pods",
            )
        routes = "true" if self.node_routes else None
        for key, value in (("native_cidr", self.native_cidr), ("node_routes", routes)):
            if self.routing != "native" and value:
                raise cross_field(
                    key,
                    f"{value}: has no effect, because 'routing' is not 'native'; remove '{key}'",
                )
        return self

    @model_validator(mode="after")
    def _the_api_is_found_without_its_service(self) -> Self:
        if self.kube_proxy_replacement and not self.api_host:
            raise cross_field(
                "api_host",
                "is required with 'kube_proxy_replacement: true'; add the host name or address of "
                "the Kubernetes API",
            )
        for key in ("api_host", "api_port"):
            if key in self.model_fields_set and not self.kube_proxy_replacement:
                raise cross_field(
                    key,
                    f"{getattr(self, key)}: has no effect without 'kube_proxy_replacement: true'; "
                    f"remove '{key}'",
                )
        return self

    @model_validator(mode="after")
    def _bbr_has_what_it_needs(self) -> Self:
        # BBR, a way to control congestion, needs the socket of each packet until the packet reaches
        # the device. This requires eBPF host routing, which kube-proxy's rules and IPsec prevent
        # (source: Cilium's documentation, "Bandwidth Manager" and "Tuning Guide").
        if not self.bbr:
            return self
        for key in ("bandwidth_manager", "kube_proxy_replacement"):
            if not getattr(self, key):
                raise cross_field("bbr", f"true: requires '{key}: true' in network.cilium; add it")
        if self.encryption == "ipsec":
            raise cross_field(
                "bbr",
                "true: cannot be combined with 'encryption: ipsec'; set 'encryption' to "
                "'wireguard' or 'none'",
            )
        return self

    @model_validator(mode="after")
    def _encryption_has_its_key(self) -> Self:
        if self.encryption == "ipsec" and not self.ipsec_secret:
            raise cross_field(
                "ipsec_secret",
                "is required with 'encryption: ipsec'; add the name of the Secret with the key",
            )
        if self.ipsec_secret and self.encryption != "ipsec":
            raise cross_field(
                "ipsec_secret",
                f"'{self.ipsec_secret}': has no effect without 'encryption: ipsec'; remove "
                "'ipsec_secret'",
            )
        if self.host_firewall and self.encryption == "ipsec":
            # Source: Cilium's documentation, "IPsec Transparent Encryption", limitations.
            raise cross_field(
                "host_firewall",
                "true: cannot be combined with 'encryption: ipsec'; remove 'host_firewall'",
            )
        return self
