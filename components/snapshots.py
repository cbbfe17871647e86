"""VolumeSnapshots of the jail and of the controller's state, by a CronJob."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods, rights
from components.settings import Settings
from components.settings import Snapshots as SnapshotsSettings

_DEADLINE = 6 * 3600
"""Seconds after which a run is given up: clouds copy a first snapshot for hours."""


@dataclass(frozen=True)
class SnapshotsArgs:
    namespace: pulumi.Input[str]
    settings: SnapshotsSettings
    classes: Mapping[str, str]
    """VolumeSnapshotClasses by claim."""
    images: pods.Images


class Snapshots(pulumi.ComponentResource):
    """A CronJob that makes them and removes old ones, and a Job that sees whether there can be any.

    Nobody waits for that Job but the deploy, which fails where the cluster has no VolumeSnapshots:
    in the night nobody would hear of it.
    """

    def __init__(
        self, name: str, args: SnapshotsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("snapshots", "Snapshots"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = rights.account(name, c.SNAPSHOTS, args.namespace, child)
        rule = {
            "apiGroups": ["snapshot.storage.k8s.io"],
            "resources": ["volumesnapshots"],
            "verbs": ["create", "delete", "list"],
        }
        granted = rights.grant(name, account, args.namespace, [rule], child)
        after = pulumi.ResourceOptions(parent=self, depends_on=[granted])
        k8s.batch.v1.Job(
            f"{name}-check",
            metadata={"namespace": args.namespace, "labels": pods.labels(c.SNAPSHOTS)},
            spec={
                "backoffLimit": 3,
                **pods.gives_up("snapshots", c.SNAPSHOTS_REFUSED),
                "template": _pod(args, account, "--check"),
            },
            opts=after,
        )
        k8s.batch.v1.CronJob(
            f"{name}-take",
            metadata={"name": c.SNAPSHOTS, "namespace": args.namespace},
            spec=pods.scheduled(
                args.settings.schedule,
                {
                    # One that was not ready in time is no better made again at once.
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": _DEADLINE * len(args.classes) + 600,
                    "template": _pod(args, account),
                },
            ),
            opts=after,
        )
        self.register_outputs({})


def _pod(args: SnapshotsArgs, account: rights.Account, *options: str) -> pods.Spec:
    security = pods.security(user=c.NOBODY_ID)["securityContext"]
    environment = {
        "NAMESPACE": args.namespace,
        "KEEP": str(args.settings.keep),
        "WAIT": str(_DEADLINE),
    }
    return {
        "metadata": {"labels": pods.labels(c.SNAPSHOTS)},
        "spec": {
            **pods.pod_defaults(args.images),
            **rights.token(account),
            # For the file of its token.
            "securityContext": {"fsGroup": c.NOBODY_ID},
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "snapshots",
                    **pods.image("agents", args.images),
                    "args": [
                        "agents.snapshots",
                        *options,
                        *(f"{claim}={chosen}" for claim, chosen in sorted(args.classes.items())),
                    ],
                    "env": [{"name": key, "value": value} for key, value in environment.items()],
                    "securityContext": {**security, "readOnlyRootFilesystem": True},
                    **pods.requests("10m", "64Mi"),
                    # Its last line says why.
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
        },
    }


def install(
    settings: Settings,
    namespace: pulumi.Input[str],
    images: pods.Images,
    opts: pulumi.ResourceOptions,
) -> None:
    """What the settings want of snapshots, if anything."""
    wanted, jail = settings.snapshots, settings.jail
    if wanted:
        of_jail = jail.claim or (c.JAIL_SERVER if jail.server else c.JAIL_CLAIM)
        found = {of_jail: wanted.jail, c.STATE_CLAIM: wanted.state}
        classes = {claim: chosen for claim, chosen in found.items() if chosen}
        Snapshots("snapshots", SnapshotsArgs(namespace, wanted, classes, images), opts)
