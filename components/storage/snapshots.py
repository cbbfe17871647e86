"""A CronJob for VolumeSnapshots of the jail and of the controller's state."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity import rights
from components.settings import Settings
from components.settings import Snapshots as SnapshotsSettings
from components.site import Site

_DEADLINE = 6 * 3600
"""Time limit in seconds for one snapshot. It is long, because clouds need hours to copy the first
snapshot."""


@dataclass(frozen=True)
class SnapshotsArgs:
    site: Site
    settings: SnapshotsSettings
    classes: Mapping[str, str]
    """VolumeSnapshotClasses by claim."""


class Snapshots(pulumi.ComponentResource):
    """A CronJob that creates snapshots and removes old ones, and a Job that checks the cluster.

    The deploy waits for the Job, and fails if the cluster does not support VolumeSnapshots. Without
    the Job, an operator would notice this only when the CronJob fails at night.
    """

    def __init__(
        self, name: str, args: SnapshotsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("snapshots", "Snapshots"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = rights.account(name, c.SNAPSHOTS, args.site.namespace, child)
        rule = {
            "apiGroups": ["snapshot.storage.k8s.io"],
            "resources": ["volumesnapshots"],
            "verbs": ["create", "delete", "list"],
        }
        granted = rights.grant(name, account, args.site.namespace, [rule], child)
        after = pulumi.ResourceOptions(parent=self, depends_on=[granted])
        k8s.batch.v1.Job(
            f"{name}-check",
            metadata={"namespace": args.site.namespace, "labels": pods.labels(c.SNAPSHOTS)},
            spec={
                "backoffLimit": 3,
                **pods.fail_on("snapshots", c.SNAPSHOTS_REFUSED),
                "template": _pod(args, account, "--check"),
            },
            opts=after,
        )
        k8s.batch.v1.CronJob(
            f"{name}-take",
            metadata={"name": c.SNAPSHOTS, "namespace": args.site.namespace},
            spec=pods.scheduled(
                args.settings.schedule,
                {
                    # Do not retry: if a snapshot was not ready in time, a second one would not be
                    # ready sooner.
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
        "NAMESPACE": args.site.namespace,
        "KEEP": str(args.settings.keep),
        "WAIT": str(_DEADLINE),
    }
    return pods.template(
        c.SNAPSHOTS,
        {
            **args.site.pod(c.SNAPSHOTS),
            **rights.token(account),
            # Let the agent read its token.
            "securityContext": {"fsGroup": c.NOBODY_ID},
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "snapshots",
                    **pods.image("agents", args.site.images),
                    "args": [
                        "agents.snapshots",
                        *options,
                        *(f"{claim}={chosen}" for claim, chosen in sorted(args.classes.items())),
                    ],
                    "env": pods.environment(environment),
                    "securityContext": {**security, "readOnlyRootFilesystem": True},
                    **pods.requests("10m", "64Mi"),
                    # If the container fails, Kubernetes copies the last lines of its log to the
                    # pod's status.
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
        },
    )


def install(
    settings: Settings,
    site: Site,
    opts: pulumi.ResourceOptions,
) -> None:
    """Create the component if the settings request snapshots."""
    wanted, jail = settings.snapshots, settings.jail
    if wanted:
        of_jail = jail.claim or (c.JAIL_SERVER if jail.server else c.JAIL_CLAIM)
        found = {of_jail: wanted.jail, c.STATE_CLAIM: wanted.state}
        classes = {claim: chosen for claim, chosen in found.items() if chosen}
        Snapshots(site.named("snapshots"), SnapshotsArgs(site, wanted, classes), opts)
