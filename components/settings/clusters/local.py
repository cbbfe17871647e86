"""Settings of a cluster of containers on this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from components.conventions import CLUSTER_DOMAIN
from components.settings.clusters.base import BaseCluster, Problem
from components.settings.types import Number, Port

if TYPE_CHECKING:
    from components.settings.models import Settings


def machine_cpus() -> float:
    """Return the number of CPUs of this machine, infinite if it is unknown."""
    return os.cpu_count() or math.inf


class LocalCluster(BaseCluster):
    """A Kubernetes cluster of containers on this machine, which `make up` starts."""

    kind: Literal["local"]
    nodes: Annotated[int, Field(ge=1, le=9), Number] = 2
    """Number of Kubernetes nodes; the first one also runs the control plane."""
    api_port: Port = 16443
    """Loopback port of the Kubernetes API."""
    ssh_port: Port = 12222
    """Loopback port of the login node's sshd."""
    runtime: Literal["crun", "runc"] = "crun"
    """Program that runs the pods' containers. crun starts them in less time; most other clusters
    use runc."""
    domain: ClassVar[str] = CLUSTER_DOMAIN

    def problems(self, stack: Settings) -> Iterator[Problem]:
        """Refuse a load balancer, another network plugin, and equal ports."""
        service = stack.login.service
        if service != "NodePort":
            yield (
                "login.service",
                (
                    f"{service}: a local cluster has no load balancer for login nodes; set "
                    "login.service to 'NodePort'"
                ),
            )
        if stack.login.node_port is None:
            yield (
                "login.node_port",
                "is required on a local cluster; set login.node_port to a port from 30000 to 32767",
            )
        if self.api_port == self.ssh_port:
            yield (
                "cluster.ssh_port",
                (f"{self.ssh_port}: is the same port as cluster.api_port; choose another port"),
            )
        if stack.network.cilium:
            yield (
                "network.cilium",
                ("a local cluster installs its own network plugin; remove network.cilium"),
            )
        chosen = stack.network.policies
        if chosen in ("cilium", "both"):
            expected = "expected kubernetes or none"
            yield "network.policies", f"{chosen}: a local cluster has no Cilium; {expected}"

    def warnings(self, stack: Settings) -> Iterator[Problem]:
        """Warn about nodes that cannot start, because they request more than this machine has."""
        cpus = machine_cpus()
        for nodeset in stack.nodesets:
            key = f"nodesets[{nodeset.name}]"
            if nodeset.requested_cpus > cpus and not nodeset.runs_pods:
                yield (
                    f"{key}.{'cpu_request' if nodeset.cpu_request else 'cpus'}",
                    (
                        f"{nodeset.requested_cpus:g}: this machine has {cpus} CPUs, so the pods "
                        "of the nodeset stay pending; lower this number, or set 'cpu_request' to "
                        "a lower number"
                    ),
                )
            if nodeset.own_gpus:
                yield (
                    f"{key}.gpus",
                    (
                        f"{nodeset.own_gpus.count}: a local cluster offers no GPUs, so the pods of "
                        "the nodeset stay pending; remove 'gpus', or install a device plugin"
                    ),
                )
