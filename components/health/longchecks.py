"""Long checks: CronJobs that measure nodes with Slurm jobs, and store time series."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import LongCheck
from components.settings import LongChecks as LongChecksSettings
from components.site import MountedJail, Site

_DEADLINE = 11 * 3600
"""Time limit in seconds of one run of a check."""
_FINAL = (2, 3, 4)
"""Exit codes of agents/longchecks after which a retry would not help."""
_QUERIES: pods.Spec = {
    "args": ["agents.longchecks", "serve"],
    "ports": pods.metrics_port(c.LONG_CHECKS),
}
"""Container in which operators query the results of long checks. It also serves metrics."""


@dataclass(frozen=True)
class LongChecksArgs:
    site: Site
    settings: LongChecksSettings
    wanted: str
    """Wanted checks, in the format of agents/longchecks."""
    jwt_secret: pulumi.Input[str]
    jail: MountedJail
    rest_url: pulumi.Input[str]
    protect: bool


class LongChecks(pulumi.ComponentResource):
    """A CronJob for each check, a volume with the time series, and a pod for queries.

    The pod also serves the newest values as metrics. The volume may be ReadWriteOnce, so the Jobs
    run on the Kubernetes node of this pod.
    """

    def __init__(
        self, name: str, args: LongChecksArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("checks", "LongChecks"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        config = pods.config_map(
            f"{name}-config",
            c.LONG_CHECKS_CONFIG,
            args.site.namespace,
            {c.LONG_CHECKS_FILE: args.wanted},
            child,
        )
        claim = pods.claim(
            f"{name}-volume",
            c.LONG_CHECKS_CLAIM,
            args.site.namespace,
            pods.Volume("ReadWriteOnce", args.settings.size, args.settings.storage_class),
            pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        volumes = [
            pods.config_volume("config", config.metadata.name),
            pods.claim_volume("series", claim.metadata.name),
            pods.claim_volume("jail", args.jail.claim, read_only=True),
            pods.secret_volume("jwt", args.jwt_secret),
        ]
        queries = k8s.apps.v1.Deployment(
            f"{name}-desk",
            metadata={"name": c.LONG_CHECKS, "namespace": args.site.namespace},
            spec=pods.workload(c.LONG_CHECKS, _pod(args, volumes, _QUERIES), **pods.ALONE),
            opts=child,
        )
        pods.metrics_service(f"{name}-service", c.LONG_CHECKS, args.site.namespace, queries, child)
        for check in args.settings.checks:
            k8s.batch.v1.CronJob(
                f"{name}-{check.name}",
                metadata={
                    "name": f"{c.LONG_CHECK}-{check.name}",
                    "namespace": args.site.namespace,
                },
                spec={
                    **pods.scheduled(check.schedule, _job(args, check, volumes)),
                    "suspend": not check.enabled,
                },
                opts=child,
            )
        self.register_outputs({})


def _job(args: LongChecksArgs, check: LongCheck, volumes: list[pods.Spec]) -> pods.Spec:
    return {
        # Allow retries: if a pod is killed or cannot reach Slurm, the Job's next pod continues the
        # same run.
        "backoffLimit": 6,
        "activeDeadlineSeconds": _DEADLINE,
        **pods.fail_on("longchecks", *_FINAL),
        "template": pods.template(
            c.LONG_CHECK,
            {
                **_pod(args, volumes, {"args": ["agents.longchecks", "run", check.name]}),
                **pods.beside(c.LONG_CHECKS),
                "restartPolicy": "Never",
            },
        ),
    }


def _pod(args: LongChecksArgs, volumes: list[pods.Spec], process: pods.Spec) -> pods.Spec:
    environment = {
        "REST_URL": args.rest_url,
        "JWT_KEY": c.JWT_KEY,
        "LONG_CHECKS": f"{c.LONG_CHECKS_ETC}/{c.LONG_CHECKS_FILE}",
        "SERIES": c.LONG_CHECKS_DATA,
        "OUTPUTS": f"{c.JAIL}{c.CHECKS_LOGS}",
        "PORT": str(c.LONG_CHECKS_PORT),
    }
    container = {
        "name": "longchecks",
        **pods.image("agents", args.site.images),
        **process,
        "env": pods.environment(environment),
        **pods.security(user=c.SLURM_ID),
        **args.site.requests(c.LONG_CHECKS, "10m", "48Mi"),
        # If the container fails, Kubernetes copies the last lines of its log to the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            pods.mount("config", c.LONG_CHECKS_ETC, read_only=True),
            pods.mount("series", c.LONG_CHECKS_DATA),
            pods.mount("jail", c.JAIL, read_only=True),
            pods.mount("jwt", c.JWT_KEY_DIR, read_only=True),
        ],
    }
    return {
        **args.site.pod(c.LONG_CHECKS),
        **pods.owned_by(c.SLURM_ID),
        "containers": [container],
        "volumes": volumes,
    }
