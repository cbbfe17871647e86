"""Drivers of storage, GPUs and networks, installed in a cluster before Slurm."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components.cluster import operators
from components.cluster.interface import Chart, Cluster
from components.settings import Settings

_TIMEOUT = 900
"""Time limit in seconds for a chart's pods to become ready. Some pods pull gigabytes of images."""


@dataclass(frozen=True)
class DriversArgs:
    settings: Settings
    cluster: Cluster
    network: Sequence[pulumi.Resource]
    """Resources of the pod network, if the stack installs it. The charts are installed after them:
    Helm waits until a chart's pods are ready, and pods need a network."""

    def charts(self) -> list[Chart]:
        return [*self.cluster.charts, *operators.charts(self.settings, self.cluster)]

    def is_needed(self) -> bool:
        return bool(self.cluster.storage.classes or self.charts())


class Drivers(pulumi.ComponentResource):
    """Helm releases and storage classes. `opts` must contain the Kubernetes provider."""

    def __init__(self, name: str, args: DriversArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(c.type_token("cluster", "Equipment"), name, None, opts)
        settings, cluster = args.settings, args.cluster
        self._name = name
        ready = [*cluster.ready, *args.network]
        for storage_class, spec in sorted(cluster.storage.classes.items()):
            k8s.storage.v1.StorageClass(
                f"{name}-class-{storage_class}", **spec, opts=self._after(*ready)
            )
        releases: dict[str, pulumi.Resource] = {}
        # Install the charts one by one: a chart may use custom resources of an earlier chart.
        before: Sequence[pulumi.Resource] = ready
        for chart in args.charts():
            releases[chart.name] = self._release(chart, before)
            before = [releases[chart.name]]
        if operators.sliced(settings):
            k8s.core.v1.ConfigMap(
                f"{name}-mig",
                metadata={
                    "name": operators.MIG_CONFIG_MAP,
                    "namespace": c.GPU_NAMESPACE,
                },
                data={"config.yaml": operators.mig_config(settings)},
                opts=self._after(releases["gpu-operator"]),
            )
        if "network-operator" in releases:
            k8s.apiextensions.CustomResource(
                f"{name}-nics",
                api_version="mellanox.com/v1alpha1",
                kind="NicClusterPolicy",
                # The name is fixed: the network operator ignores a policy with any other name.
                metadata={"name": "nic-cluster-policy"},
                spec=operators.nic_policy(settings),
                opts=self._after(releases["network-operator"]),
            )
        self.register_outputs({})

    def _after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[*resources])

    def _release(self, chart: Chart, before: Sequence[pulumi.Resource]) -> pulumi.Resource:
        oci = chart.repository.startswith("oci://")
        where = (
            {"chart": f"{chart.repository}/{chart.name}"}
            if oci
            else {"chart": chart.name, "repository_opts": {"repo": chart.repository}}
        )
        release: pulumi.Resource = k8s.helm.v3.Release(
            f"{self._name}-{chart.name}",
            **where,
            name=chart.name,
            namespace=chart.namespace,
            create_namespace=True,
            version=chart.version,
            values=chart.values,
            timeout=_TIMEOUT,
            # Roll back a failed upgrade. Otherwise, it would leave a mix of old and new objects.
            atomic=True,
            opts=self._after(*before),
        )
        return release
