"""node-exporter, which exports metrics of the cluster's machines.

For compatibility with earlier releases, the component label of node-exporter's pods has the value
`machines`.
"""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.site import Site

_HOST = "/host"
"""Mount point of the machine's root in node-exporter."""
_COLLECTORS = (
    *("cpu", "diskstats", "filesystem", "infiniband", "loadavg", "meminfo", "netdev"),
    *("pressure", "stat", "time", "uname", "vmstat"),
)
"""Enabled collectors of node-exporter: those that dashboards and alerts need."""
_UNSEEN_FILES = r"^/(dev|proc|run|sys|var/lib/(containerd|docker|kubelet)/.+)($|/)"
"""Mount points that node-exporter ignores, because they are not on a disk of the machine or belong
to pods."""
_UNSEEN_LINKS = "^(lo|veth.*|cali.*|cilium.*|lxc.*|nodelocaldns|kube-.*)$"
"""Network devices that node-exporter ignores: the loopback device, and devices that lead to
pods."""


@dataclass(frozen=True)
class NodeExporterArgs:
    site: Site


class NodeExporter(pulumi.ComponentResource):
    """node-exporter on each Kubernetes node.

    The pods run as `nobody` and can only read the machine's files. They use the machine's network
    namespace, because the counters of the machine's network devices are visible only there.
    """

    def __init__(
        self, name: str, args: NodeExporterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("machines", "Machines"), name, None, opts)
        k8s.apps.v1.DaemonSet(
            f"{name}-exporter",
            metadata={
                "name": c.NODE_EXPORTER,
                "namespace": args.site.namespace,
                # Do not wait for the pods: those on Kubernetes nodes that are down never become
                # ready.
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec=pods.workload(c.NODE_EXPORTER, _pod(args.site.images)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _pod(images: pods.Images) -> pods.Spec:
    program = [
        "prometheus-node-exporter",
        f"--web.listen-address=$(ADDRESS):{c.NODE_EXPORTER_PORT}",
        f"--path.rootfs={_HOST}",
        f"--path.procfs={_HOST}/proc",
        f"--path.sysfs={_HOST}/sys",
        "--collector.disable-defaults",
        *(f"--collector.{collector}" for collector in _COLLECTORS),
        f"--collector.filesystem.mount-points-exclude={_UNSEEN_FILES}",
        f"--collector.netdev.device-exclude={_UNSEEN_LINKS}",
    ]
    address = {"fieldRef": {"fieldPath": "status.hostIP"}}
    return {
        **pods.pod_defaults(images),
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "node-exporter",
                **pods.image("monitoring", images),
                "command": program,
                "env": [{"name": "ADDRESS", "valueFrom": address}],
                **pods.security(user=c.NOBODY_ID),
                **pods.requests("10m", "32Mi"),
                "ports": [{"name": c.METRICS, "containerPort": c.NODE_EXPORTER_PORT}],
                "volumeMounts": [
                    {
                        **pods.mount("machine", _HOST, read_only=True),
                        # Let the pod also see file systems that the machine mounts later.
                        "mountPropagation": "HostToContainer",
                    }
                ],
            }
        ],
        "volumes": [{"name": "machine", "hostPath": {"path": "/"}}],
    }
