"""What every kind of cluster tells the layers that stand on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pulumi

from components.conventions import LABEL_NODESET
from components.pods import Spec
from components.settings import Nodeset, Settings

EVERYWHERE: Spec = {"operator": "Exists"}
"""Toleration of what looks after machines, whatever taints they have."""


@dataclass(frozen=True)
class ClusterArgs:
    settings: Settings
    stack: str


@dataclass(frozen=True)
class Chart:
    """A Helm chart with all that is chosen for it."""

    name: str
    """Name of the release."""
    namespace: str
    version: str
    values: Spec
    repository: str
    """URL of a repository that has a chart of the release's name, or an `oci://` one's."""


@dataclass(frozen=True)
class NodeClass:
    """The machines of one nodeset, as its pods ask for them."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the machines, when they are fit for pods."""
    taints: Mapping[str, str] = field(default_factory=dict)
    """Of the machines, all with the effect NoSchedule."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """What a pod gets beside CPUs, memory and GPUs: network cards and what goes with them."""

    def tolerations(self) -> list[Spec]:
        """What a pod must bear to run there."""
        return [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            for key, value in sorted(self.taints.items())
        ]


@dataclass(frozen=True)
class Storage:
    """What volumes may be on, beside the cluster's default class."""

    shared: pulumi.Input[str] | None = None
    """A class that offers ReadWriteMany; None where none is known of."""
    jail: Spec | None = None
    """A file system for the jail, as the source of a PersistentVolume."""
    classes: Mapping[str, Spec] = field(default_factory=dict)
    """StorageClasses to make, by name."""


@dataclass(frozen=True)
class Cluster:
    """A Kubernetes cluster that can be deployed to."""

    kubeconfig: pulumi.Input[str]
    """Its contents, or a path."""
    context: str | None = None
    """Context in it; by default its current one."""
    node_classes: Mapping[str, NodeClass] = field(default_factory=dict)
    """By nodeset; without one, a nodeset's pods run wherever its own settings let them."""
    storage: Storage = field(default_factory=Storage)
    network: Literal["amazon-vpc", "cilium", "ptp"] | None = None
    """The network plugin that is there; None where nothing is known of it."""
    login_annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Of the Service that leads to login nodes."""
    charts: Sequence[Chart] = ()
    """What is to be installed in it, such as its storage's drivers."""
    ready: Sequence[pulumi.Resource] = ()
    """What must be there before anything is deployed to it."""


class Kind(Protocol):
    """A module of this package that makes, or finds, clusters of one kind."""

    def make(self, args: ClusterArgs) -> Cluster:
        """The cluster of a stack."""
        ...


def own_machines(nodeset: Nodeset) -> Mapping[str, str]:
    """Label and taint of the machines that are a nodeset's alone."""
    return {LABEL_NODESET: nodeset.name}


def gib(mib: int) -> int:
    """GiB that hold so many MiB."""
    return -(-mib // 1024)
