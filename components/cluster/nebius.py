"""Clusters on Nebius Managed Kubernetes."""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, cast

import pulumi
import pulumi_nebius as nebius

from components import conventions as c
from components.cluster.classes import machine_labels, machine_taints, node_class
from components.cluster.interface import Chart, Cluster, ClusterArgs, Storage, gib
from components.cluster.operators import RDMA_RESOURCE
from components.pods import Spec
from components.settings import Nodeset
from components.settings.clusters.machines import SYSTEM
from components.settings.clusters.nebius import NebiusCluster, NebiusMachines, NebiusSystem

_SHARED: Final = "/mnt/slurmstack"
"""Mount point of the shared file system on machines."""
_JAIL: Final = f"{_SHARED}/jail"
_TAG: Final = "slurmstack"
"""Tag that names the shared file system in mount commands on the machines."""
_CLASS: Final = "csi-mounted-fs-path-sc"
"""Storage class whose volumes are folders of the shared file system."""
_DRIVER: Final = Chart(
    name="csi-mounted-fs-path",
    namespace="kube-system",
    repository="oci://cr.eu-north1.nebius.cloud/mk8s/helm",
    version="0.1.3",
    values={"dataDir": f"{_SHARED}/volumes/"},
)
"""Driver of `_CLASS`. It only creates folders in the shared file system, which the machines
themselves mount."""
_STOP_MARGIN: Final = 300
"""Seconds between the end of a node's `drain_grace` and the removal of the node's machine."""


def make(args: ClusterArgs) -> Cluster:
    """Create a cluster in the Nebius project that the settings name."""
    return Nebius("nebius", args).cluster


class Nebius(pulumi.ComponentResource):
    """Network, control plane, shared file system, InfiniBand clusters, and groups of machines: one
    group for each nodeset, and one for everything else.

    The provider takes its credentials from the environment, or from `nebius:…` in the stack's
    config.
    """

    cluster: Cluster

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("cluster", "Nebius"), name, None, opts)
        settings, cluster = args.settings, cast(NebiusCluster, args.settings.cluster)
        self._settings, self._cluster, self._name = settings, cluster, name
        self._child = pulumi.ResourceOptions(parent=self)
        # Protect the data, and the cluster with its machines, from an accidental edit of settings.
        kept = pulumi.ResourceOptions(parent=self, protect=settings.protect_data)
        project = {"parent_id": cluster.project}
        subnet: pulumi.Input[str] = cluster.subnet or self._subnet(project)
        kubernetes = self._control_plane(cluster, subnet, kept)
        self._kubernetes: pulumi.Output[str] = kubernetes.id
        self._files = nebius.ComputeV1Filesystem(
            f"{name}-files",
            **project,
            name=f"{settings.cluster_name}-jail",
            type=cluster.file_system_type,
            size_gibibytes=gib(settings.jail.size),
            forbid_deletion=settings.protect_data,
            opts=kept,
        )
        fabrics = sorted({m.fabric for m in cluster.machines.values() if m.fabric})
        self._fabrics = {
            fabric: nebius.ComputeV1GpuCluster(
                f"{name}-{fabric}",
                **project,
                name=f"{settings.cluster_name}-{fabric}",
                infiniband_fabric=fabric,
                opts=self._child,
            )
            for fabric in fabrics
        }
        system = self._system(cluster.system)
        for nodeset in settings.nodesets:
            self._workers(nodeset, cluster.machines[nodeset.name])
        kubeconfig: pulumi.Output[str] = kubernetes.status.apply(
            lambda status: _kubeconfig(settings.cluster_name, status)
        )
        self.cluster = Cluster(
            kubeconfig=kubeconfig,
            node_classes={
                nodeset.name: node_class(
                    nodeset,
                    settings,
                    self._cards(cluster.machines[nodeset.name]),
                )
                for nodeset in settings.nodesets
            },
            storage=Storage(shared=_CLASS, jail={"hostPath": {"path": _JAIL, "type": "Directory"}}),
            login_annotations=self._address(subnet, project),
            charts=[_DRIVER],
            ready=[system],
        )
        self.register_outputs({"kubeconfig": kubeconfig})

    def _control_plane(
        self, cluster: NebiusCluster, subnet: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> nebius.Mk8sV1Cluster:
        return nebius.Mk8sV1Cluster(
            f"{self._name}-kubernetes",
            parent_id=cluster.project,
            name=self._settings.cluster_name,
            control_plane={
                "subnet_id": subnet,
                "version": cluster.version,
                "endpoints": {"public_endpoint": {"allowed_cidrs": sorted(cluster.api_from)}},
            },
            opts=opts,
        )

    def _cards(self, machines: NebiusMachines) -> dict[str, str]:
        """Return the InfiniBand resource of a node's pod, if the stack installs the operators."""
        shared = machines.fabric and self._settings.installs_operators()
        return {RDMA_RESOURCE: "1"} if shared else {}

    def _subnet(self, project: Mapping[str, str]) -> pulumi.Output[str]:
        """Create a network, and in it a subnet with the cloud's default addresses. Return the
        subnet's id."""
        network = nebius.VpcV1Network(
            f"{self._name}-network",
            **project,
            name=self._settings.cluster_name,
            opts=self._child,
        )
        subnet = nebius.VpcV1Subnet(
            f"{self._name}-subnet",
            **project,
            name=self._settings.cluster_name,
            network_id=network.id,
            opts=self._child,
        )
        made: pulumi.Output[str] = subnet.id
        return made

    def _address(
        self, subnet: pulumi.Input[str], project: Mapping[str, str]
    ) -> dict[str, pulumi.Input[str]]:
        """Reserve an address for the login Service; return the annotation that assigns the address.

        Deleting the Service does not delete the address.
        """
        if self._settings.login.service != "LoadBalancer":
            return {}
        address = nebius.VpcV1Allocation(
            f"{self._name}-login",
            **project,
            name=f"{self._settings.cluster_name}-login",
            ipv4_public={"subnet_id": subnet},
            opts=self._child,
        )
        return {"nebius.com/load-balancer-allocation-id": address.id}

    def _system(self, system: NebiusSystem) -> pulumi.Resource:
        """Create the machines for everything except workers."""
        return self._group(
            SYSTEM,
            template={"resources": {"platform": system.platform, "preset": system.preset}},
            fixed_node_count=system.replicas,
        )

    def _workers(self, nodeset: Nodeset, machines: NebiusMachines) -> None:
        """Create one machine for each node of a nodeset."""
        bounds = self._cluster.bounds(nodeset)
        fabric = machines.fabric and self._fabrics[machines.fabric].id
        self._group(
            nodeset.name,
            template={
                "resources": {"platform": machines.platform, "preset": machines.preset},
                "boot_disk": {
                    "type": "NETWORK_SSD",
                    "size_gibibytes": gib(machines.disk),
                },
                "metadata": {"labels": machine_labels(nodeset, self._settings)},
                "taints": machine_taints(nodeset),
                **({"gpu_cluster": {"id": fabric}} if fabric else {}),
                **({"preemptible": {}} if machines.spot else {}),
            },
            # Replace machines one by one, each after its Slurm node has drained and stopped.
            strategy={
                "max_surge": {"count": 0},
                "max_unavailable": {"count": 1},
                "drain_timeout": f"{nodeset.drain_grace + _STOP_MARGIN}s",
            },
            **(
                {"autoscaling": {"min_node_count": bounds.min, "max_node_count": bounds.max}}
                if bounds
                else {"fixed_node_count": nodeset.replicas}
            ),
        )

    def _group(self, group: str, template: Spec, **further: Any) -> pulumi.Resource:
        made: pulumi.Resource = nebius.Mk8sV1NodeGroup(
            f"{self._name}-group-{group}",
            parent_id=self._kubernetes,
            name=group,
            template={
                **template,
                "filesystems": [
                    {
                        "attach_mode": "READ_WRITE",
                        "mount_tag": _TAG,
                        "existing_filesystem": {"id": self._files.id},
                    }
                ],
                "cloud_init_user_data": _CLOUD_INIT,
            },
            **further,
            # Delete the old group first: two groups cannot have the same name.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        return made


# Create the jail's folder only after the mount. If the mount fails, the folder is then missing. So
# pods do not start, instead of writing to the machine's own disk.
_CLOUD_INIT: Final = (
    "#cloud-config\n"
    "runcmd:\n"
    f"  - [mkdir, -p, {_SHARED}]\n"
    f'  - [sh, -c, "echo {_TAG} {_SHARED} virtiofs defaults,nofail 0 0 >> /etc/fstab"]\n'
    f'  - [sh, -c, "mount {_SHARED} && mkdir -p {_JAIL}"]\n'
)


def _kubeconfig(name: str, status: "nebius.outputs.Mk8sV1ClusterStatus") -> str:
    """Return a kubeconfig without credentials. Clients of this kubeconfig run the command `nebius`,
    which gets a token."""
    control_plane = status.control_plane
    certificate = control_plane.auth.cluster_ca_certificate
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": control_plane.endpoints.public_endpoint,
                        "certificate-authority-data": base64.b64encode(
                            certificate.encode()
                        ).decode(),
                    },
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [
                {
                    "name": name,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "nebius",
                            "args": ["mk8s", "v1", "cluster", "get-token", "--format", "json"],
                            "interactiveMode": "Never",
                        }
                    },
                }
            ],
        },
        sort_keys=True,
    )
