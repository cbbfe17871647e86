"""The Job that makes accounts, users and QOS match the settings; see agents/accounts."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity.auth import Conf, pod_security
from components.site import Site, Slurmctld

_DEADLINE = 1200
"""Time limit of the Job in seconds. The limit is long: the Job creates about twenty users a second,
and a site can have thousands of users. The Job may also cancel Slurm jobs, and then waits until
they have ended."""


@dataclass(frozen=True)
class AccountsArgs:
    site: Site
    slurmctld: Slurmctld
    wanted: pulumi.Input[str]
    """Accounts in the format of agents/accounts."""
    restored: str | None
    """Name of the dump that slurmdbd's pod may load in this deploy. The dump may lack some of the
    wanted accounts, so a changed name runs the Job again."""


class Accounts(pulumi.ComponentResource):
    """A Job that makes the accounts in slurmdbd match the settings. The deploy waits until the Job
    ends.

    The Job fails, and changes nothing, if Slurm jobs use an account or another object that the Job
    would remove.
    """

    def __init__(
        self, name: str, args: AccountsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("accounts", "Accounts"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        config = pods.config_map(
            f"{name}-wanted",
            c.ACCOUNTS_CONFIG,
            args.site.namespace,
            {c.ACCOUNTS_FILE: args.wanted},
            child,
        )
        k8s.batch.v1.Job(
            f"{name}-apply",
            metadata={"namespace": args.site.namespace, "labels": pods.labels(c.ACCOUNTS)},
            spec=_job(args, config.metadata.name),
            opts=child,
        )
        self.register_outputs({})


def _job(args: AccountsArgs, config: pulumi.Input[str]) -> pods.Spec:
    mounted = [
        pods.mounted(pods.config_volume("wanted", config), c.ACCOUNTS_WANTED, read_only=True),
    ]
    restored = {"restored": args.restored} if args.restored else {}
    digest = pulumi.Output.from_input(args.wanted).apply(
        lambda wanted: c.checksum({c.ACCOUNTS_FILE: wanted, **restored})
    )
    return {
        "backoffLimit": 3,
        "activeDeadlineSeconds": _DEADLINE,
        **pods.fail_on("accounts", c.ACCOUNTS_REFUSED),
        "template": pods.template(
            c.ACCOUNTS,
            {
                **args.site.pod(c.ACCOUNTS),
                **pod_security(args.site.auth),
                "restartPolicy": "Never",
                "initContainers": [
                    *args.site.sidecars(Conf(server=args.slurmctld.server)),
                ],
                "containers": [
                    {
                        "name": "accounts",
                        **pods.image("agents", args.site.images),
                        "args": ["agents.accounts"],
                        "env": [
                            {"name": "SLURM_CONF_SERVER", "value": args.slurmctld.server},
                            {"name": "WANTED", "value": f"{c.ACCOUNTS_WANTED}/{c.ACCOUNTS_FILE}"},
                        ],
                        **pods.security(user=c.SLURM_ID),
                        **pods.requests("20m", "64Mi"),
                        # If the container fails, the deploy shows the last lines of the container's
                        # log.
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "volumeMounts": [*args.site.client_mounts(), *pods.mounts(mounted)],
                    }
                ],
                "volumes": [*args.site.volumes(), *pods.volumes(mounted)],
            },
            {c.ANNOTATION_CHECKSUM: digest},
        ),
    }
