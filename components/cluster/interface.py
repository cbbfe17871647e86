"""Interface between each kind of cluster and the layers on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pulumi

from components.conventions import LABEL_NODESET
from components.pods import Spec
from components.settings import Nodeset, Settings

EVERYWHERE: Spec = {"operator": "Exists"}
"""Toleration of all taints, for pods that manage machines."""


@dataclass(frozen=True)
class ClusterArgs:
    settings: Settings
    stack: str


@dataclass(frozen=True)
class Chart:
    """A Helm chart with its version and values."""

    name: str
    """Name of the release."""
    namespace: str
    version: str
    values: Spec
    repository: str
    """URL of a repository, also with `oci://`; its chart has the release's name."""


@dataclass(frozen=True)
class NodeClass:
    """The machines of one nodeset, for its pods."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the machines once they are fit for pods."""
    taints: Mapping[str, str] = field(default_factory=dict)
    """Taints of the machines, all with the effect NoSchedule."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """Resources of a pod besides CPUs, memory and GPUs: network cards and what they require."""

    def tolerations(self) -> list[Spec]:
        """Return the tolerations that a pod requires to run there."""
        return [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            for key, value in sorted(self.taints.items())
        ]


@dataclass(frozen=True)
class Storage:
    """Storage for volumes, in addition to the cluster's default class."""

    shared: pulumi.Input[str] | None = None
    """A class that offers ReadWriteMany; None if no such class is known."""
    jail: Spec | None = None
    """A file system for the jail, as the source of a PersistentVolume."""
    classes: Mapping[str, Spec] = field(default_factory=dict)
    """StorageClasses to create, by name."""


@dataclass(frozen=True)
class Cluster:
    """A Kubernetes cluster that can be deployed to."""

    kubeconfig: pulumi.Input[str]
    """Its contents, or a path."""
    context: str | None = None
    """Context in it; by default its current one."""
    node_classes: Mapping[str, NodeClass] = field(default_factory=dict)
    """Classes by nodeset. Without one, a nodeset's pods run where its own settings allow it."""
    storage: Storage = field(default_factory=Storage)
    network: Literal["amazon-vpc", "cilium", "ptp"] | None = None
    """The cluster's network plugin; None if it is unknown."""
    login_annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Annotations of the Service of login nodes."""
    charts: Sequence[Chart] = ()
    """Charts to install in it, such as its storage's drivers."""
    ready: Sequence[pulumi.Resource] = ()
    """Resources that must exist before anything is deployed to it."""


class Kind(Protocol):
    """A module of this package that creates, or finds, clusters of one kind."""

    def make(self, args: ClusterArgs) -> Cluster:
        """Return the cluster of a stack."""
        ...


def own_machines(nodeset: Nodeset) -> Mapping[str, str]:
    """Return the label and taint of the machines that only one nodeset uses."""
    return {LABEL_NODESET: nodeset.name}


def gib(mib: int) -> int:
    """Convert MiB to GiB, rounded up."""
    return -(-mib // 1024)
