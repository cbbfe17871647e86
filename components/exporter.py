"""Slurm's state, and the jail's, as metrics for Prometheus; see agents/exporter."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.auth import Auth, Conf, pod_security
from components.directory import People
from components.settings import Exporter as ExporterSettings
from components.settings import Submount
from components.volumes import volume

_HIDES = frozenset({"jobs", "nodes", "partitions", "reservations"})
"""Of what users may be told only of their own, what metrics are of."""
_ATTEMPTS = 3
"""Probes in a row that fail before something is done."""


@dataclass(frozen=True)
class ExporterArgs:
    namespace: pulumi.Input[str]
    settings: ExporterSettings
    images: pods.Images
    auth: Auth
    people: People
    accounts: pulumi.Input[str]
    """ConfigMap with passwd and group."""
    config: pulumi.Input[str]
    """ConfigMap with Slurm's configuration files."""
    jail_claim: pulumi.Input[str]
    """The jail, of which it tells how full it is."""
    submounts: Sequence[Submount]
    """Volumes in it, of which it tells the same where they have one size for all nodes."""
    daemons: Sequence[pulumi.Input[pods.Spec]]
    """slurmctld in /etc/hosts."""
    private_data: Sequence[str]
    """What Slurm tells users only of their own."""


class Exporter(pulumi.ComponentResource):
    """One pod that reads Slurm in intervals, and the Service at which it is scraped.

    It is a user whom nobody knows, who may ask what everybody may ask. Where Slurm tells users
    only of their own, it is SlurmUser, since nobody else is told of everything.
    """

    def __init__(
        self, name: str, args: ExporterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("exporter", "Exporter"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        deployment = k8s.apps.v1.Deployment(
            f"{name}-agent",
            metadata={"name": c.EXPORTER, "namespace": args.namespace},
            spec={
                "replicas": 1,
                # Two would show everything twice.
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": pods.labels(c.EXPORTER)},
                "template": {
                    "metadata": {"labels": pods.labels(c.EXPORTER)},
                    "spec": _pod(args),
                },
            },
            opts=child,
        )
        pods.metrics_service(f"{name}-service", c.EXPORTER, args.namespace, deployment, child)
        self.register_outputs({})


def _pod(args: ExporterArgs) -> pods.Spec:
    watched = [one for one in args.submounts if _fills_up(one)]
    # Slurm's programs would otherwise ask slurmctld for it each time that they start.
    config = pods.mount("config", c.SLURM_ETC, read_only=True)
    return {
        **pods.pod_defaults(args.images),
        **pod_security(args.auth),
        "hostAliases": list(args.daemons),
        "initContainers": [
            *args.auth.sidecars(args.images, Conf(mount=config)),
            *args.people.sidecars(args.images),
        ],
        "containers": [
            {
                "name": "exporter",
                **pods.image("agents", args.images),
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
                **pods.requests("20m", "64Mi"),
                "ports": pods.metrics_port(c.EXPORTER),
                "readinessProbe": {**_probe("/ready"), "periodSeconds": 5},
                "livenessProbe": {**_probe("/alive"), "periodSeconds": 30},
                "volumeMounts": [
                    config,
                    *args.auth.client_mounts(),
                    *args.people.mounts(),
                    pods.mount("jail", c.JAIL, read_only=True),
                    *(
                        pods.mount(f"jail-{one.name}", _path(one), read_only=True)
                        for one in watched
                    ),
                    pods.users_mount(),
                ],
            }
        ],
        "volumes": [
            *args.auth.volumes(),
            *args.people.volumes(),
            pods.claim_volume("jail", args.jail_claim, read_only=True),
            *map(_volume, watched),
            pods.config_volume("config", args.config),
            pods.users_volume(args.accounts),
        ],
    }


def _fills_up(one: Submount) -> bool:
    """Whether a volume is the same for all nodes, and they write to it."""
    return bool(one.claim or one.nfs) and not one.read_only


def _path(one: Submount) -> str:
    # Not below the jail's: where that one hangs, nothing in it could be asked.
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
