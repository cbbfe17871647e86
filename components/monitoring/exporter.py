"""The exporter, which provides metrics of Slurm and of the jail for Prometheus; see
agents/exporter."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity.auth import Conf, pod_security
from components.settings import Exporter as ExporterSettings
from components.settings import Submount
from components.site import MountedJail, Site, Slurmctld
from components.storage.volumes import volume

_HIDES = frozenset({"jobs", "nodes", "partitions", "reservations"})
"""Categories of the Slurm option PrivateData whose data the metrics would show."""
_ATTEMPTS = 3
"""Number of failed probes in a row after which the kubelet acts."""


@dataclass(frozen=True)
class ExporterArgs:
    site: Site
    slurmctld: Slurmctld
    settings: ExporterSettings
    jail: MountedJail
    private_data: Sequence[str]
    """Value of PrivateData in slurm.conf: the categories in which users see only their own data."""


class Exporter(pulumi.ComponentResource):
    """One pod that queries Slurm at intervals, and the Service through which Prometheus scrapes the
    pod.

    The exporter runs as a user that Slurm does not know, so it has only the rights that all users
    have. If PrivateData hides data that the metrics need, the exporter runs as SlurmUser, who sees
    all data.
    """

    def __init__(
        self, name: str, args: ExporterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("exporter", "Exporter"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        deployment = k8s.apps.v1.Deployment(
            f"{name}-agent",
            metadata={"name": c.EXPORTER, "namespace": args.site.namespace},
            # Never run two exporters: every value would exist twice.
            spec=pods.workload(c.EXPORTER, _pod(args), **pods.ALONE),
            opts=child,
        )
        pods.metrics_service(f"{name}-service", c.EXPORTER, args.site.namespace, deployment, child)
        self.register_outputs({})


def _pod(args: ExporterArgs) -> pods.Spec:
    watched = [one for one in args.jail.submounts if _fills_up(one)]
    # Mount slurm.conf: otherwise, Slurm's programs would fetch it from slurmctld at each start.
    config = pods.mount("config", c.SLURM_ETC, read_only=True)
    mounted = [
        pods.mounted(
            pods.claim_volume("jail", args.jail.claim, read_only=True), c.JAIL, read_only=True
        ),
    ]
    return {
        **args.site.pod(c.EXPORTER),
        **pod_security(args.site.auth),
        "hostAliases": [args.slurmctld.alias],
        "initContainers": [
            *args.site.sidecars(Conf(mount=config)),
        ],
        "containers": [
            {
                "name": "exporter",
                **pods.image("agents", args.site.images),
                "args": ["agents.exporter"],
                "env": [
                    {"name": "INTERVAL", "value": str(args.settings.interval)},
                    {"name": "TOP", "value": str(args.settings.top)},
                    {"name": "JOBS", "value": str(args.settings.jobs)},
                    {"name": "JAIL", "value": c.JAIL},
                    *(
                        [{"name": "VOLUMES", "value": " ".join(map(_path, watched))}]
                        if watched
                        else []
                    ),
                    {"name": "PORT", "value": str(c.EXPORTER_PORT)},
                ],
                **pods.security(
                    user=c.SLURM_ID if _HIDES & {*args.private_data} else c.EXPORTER_ID
                ),
                **args.site.requests(c.EXPORTER, "20m", "64Mi"),
                "ports": pods.metrics_port(c.EXPORTER),
                "readinessProbe": {**_probe("/ready"), "periodSeconds": 5},
                "livenessProbe": {**_probe("/alive"), "periodSeconds": 30},
                "volumeMounts": [
                    config,
                    *args.site.client_mounts(),
                    *(
                        pods.mount(f"jail-{one.name}", _path(one), read_only=True)
                        for one in watched
                    ),
                    *pods.mounts(mounted),
                ],
            }
        ],
        "volumes": [
            *args.site.volumes(),
            *map(_volume, watched),
            pods.config_volume("config", args.slurmctld.config),
            *pods.volumes(mounted),
        ],
    }


def _fills_up(one: Submount) -> bool:
    """Return whether users can fill the volume, so that the exporter must report its usage: all
    nodes share the volume and can write to it."""
    return bool(one.claim or one.nfs) and not one.read_only


def _path(one: Submount) -> str:
    # Mount the volume outside the jail: if the jail's file system hangs, access to every path in
    # the jail also hangs.
    return f"{c.JAIL_VOLUMES}/{one.name}"


def _volume(one: Submount) -> pods.Spec:
    name = f"jail-{one.name}"
    return pods.claim_volume(name, one.claim, read_only=True) if one.claim else volume(name, one)


def _probe(path: str) -> pods.Spec:
    return {
        **pods.page(path, c.EXPORTER_PORT),
        "timeoutSeconds": 5,
        "failureThreshold": _ATTEMPTS,
    }
