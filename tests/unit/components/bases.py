"""Complete stack configurations with the kinds of clusters and networks that `FULL` does not
cover. `FULL` (tests/support/stack.py) has almost every key of a stack on an existing cluster."""

from typing import Any

from tests.support.stack import FULL

Values = dict[str, Any]

LOCAL: Values = {**FULL, "cluster": {"kind": "local", "nodes": 2, "runtime": "runc"}}
CILIUM: Values = {
    "version": "1.19.6",
    "pod_cidr": "10.244.0.0/16",
    "routing": "native",
    "native_cidr": "10.244.0.0/16",
    "node_routes": True,
    "mtu": 9000,
    "devices": ["bond+"],
    "kube_proxy_replacement": True,
    "api_host": "10.0.0.5",
    "api_port": 443,
    "bandwidth_manager": True,
    "bbr": True,
    "encryption": "wireguard",
    "host_firewall": True,
    "hubble": {"enabled": True, "relay": True, "ui": True},
}
NETWORKED: Values = {
    **FULL,
    "network": {**FULL["network"], "policies": "cilium", "names": ["*.lab"], "cilium": CILIUM},
}
