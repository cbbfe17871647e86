"""Interface that every kind of cluster provides to the other layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pulumi

from components.conventions import LABEL_NODESET
from components.pods import Spec
from components.settings import Nodeset, Settings

EVERYWHERE: Spec = {"operator": "Exists"}
"""Toleration of all taints, for pods that must run on every machine."""


@dataclass(frozen=True)
class ClusterArgs:
    settings: Settings
    stack: str


@dataclass(frozen=True)
class Chart:
    """A Helm chart with its version and values."""

    name: str
    """Name of the chart and of its release."""
    namespace: str
    version: str
    values: Spec
    repository: str
    """URL of the chart's repository; `oci://` is also valid."""


@dataclass(frozen=True)
class NodeClass:
    """Those properties of a nodeset's machines that affect the nodeset's pods."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of a machine that is ready for pods."""
    taints: Mapping[str, str] = field(default_factory=dict)
    """Taints of the machines, all with the effect NoSchedule."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """Resources that a pod requests in addition to CPUs, memory and GPUs, such as network cards."""

    def tolerations(self) -> list[Spec]:
        """Return the tolerations that a pod requires to run on these machines."""
        return [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            for key, value in sorted(self.taints.items())
        ]


@dataclass(frozen=True)
class Storage:
    """Storage for volumes, in addition to the cluster's default class."""

    shared: pulumi.Input[str] | None = None
    """Storage class with ReadWriteMany; None if no such class is known."""
    jail: Spec | None = None
    """Source of a PersistentVolume for the jail, if the cluster has a file system for it."""
    classes: Mapping[str, Spec] = field(default_factory=dict)
    """StorageClasses to create, by name."""


@dataclass(frozen=True)
class Cluster:
    """The Kubernetes cluster on which the stack runs."""

    kubeconfig: pulumi.Input[str]
    """Contents of the kubeconfig, or its path."""
    context: str | None = None
    """Context of the kubeconfig; by default the current one."""
    node_classes: Mapping[str, NodeClass] = field(default_factory=dict)
    """For each nodeset, the class of its machines. The pods of a nodeset without a class follow
    only the nodeset's own settings."""
    storage: Storage = field(default_factory=Storage)
    login_annotations: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Annotations of the login nodes' Service."""
    charts: Sequence[Chart] = ()
    """Charts to install, such as storage drivers."""
    ready: Sequence[pulumi.Resource] = ()
    """Resources that must exist before pods run in the cluster."""


class Kind(Protocol):
    """A module of this package that creates, or finds, clusters of one kind."""

    def make(self, args: ClusterArgs) -> Cluster:
        """Return the cluster of a stack."""
        ...


def own_machines(nodeset: Nodeset) -> Mapping[str, str]:
    """Return the label of a nodeset's own machines. The taint of these machines has the same key
    and value."""
    return {LABEL_NODESET: nodeset.name}


def gib(mib: int) -> int:
    """Convert MiB to GiB, rounded up."""
    return -(-mib // 1024)
