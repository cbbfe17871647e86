"""slurmrestd: Slurm's REST API, for clients with a token."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.settings import Rest as RestSettings
from components.site import Site, Slurmctld


@dataclass(frozen=True)
class RestArgs:
    site: Site
    slurmctld: Slurmctld
    settings: RestSettings
    accounting: bool
    """Whether the stack has slurmdbd. slurmrestd then also serves slurmdbd's API."""


class Rest(pulumi.ComponentResource):
    """slurmrestd in its own pods, and its Service inside the cluster.

    slurmrestd has no key: slurmctld verifies the token of each request.
    """

    url: pulumi.Output[str]
    """URL of the API. Pulumi knows this output only after slurmrestd accepts connections."""

    def __init__(
        self, name: str, args: RestArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("rest", "Rest"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        slurmrestd = k8s.apps.v1.Deployment(
            f"{name}-slurmrestd",
            metadata={"name": c.REST, "namespace": args.site.namespace},
            spec=pods.workload(c.REST, _pod(args), replicas=args.settings.replicas),
            opts=child,
        )
        port = pods.service_port("http", c.REST_PORT)
        service = pods.service(
            f"{name}-service", c.REST, args.site.namespace, slurmrestd, port, child
        )
        self.url = service.metadata.name.apply(lambda host: f"http://{host}:{c.REST_PORT}")
        self.register_outputs({"url": self.url})


def _pod(args: RestArgs) -> pods.Spec:
    sidecars = args.site.sssd.sidecars(args.site.images)
    return {
        **args.site.pod(c.REST),
        "hostAliases": args.slurmctld.daemons,
        **({"initContainers": sidecars} if sidecars else {}),
        "containers": [_slurmrestd(args)],
        "volumes": [
            *args.site.user_volumes(),
            pods.config_volume("config", args.slurmctld.config),
        ],
    }


def _parts(accounting: bool) -> pods.Spec:
    """Return the parts of Slurm's API to serve. By default, the image serves only slurmctld's."""
    if not accounting:
        return {}
    return {"env": [{"name": "SLURMRESTD_OPENAPI_PLUGINS", "value": "slurmctld,slurmdbd"}]}


def _slurmrestd(args: RestArgs) -> pods.Spec:
    return {
        "name": "slurmrestd",
        **pods.image("rest", args.site.images),
        **pods.security(user=c.REST_ID),
        **args.site.requests(c.REST, "20m", "32Mi"),
        **_parts(args.accounting),
        "ports": [{"name": "http", "containerPort": c.REST_PORT}],
        **pods.probes(pods.open_port(c.REST_PORT)),
        "volumeMounts": [
            # slurmrestd uses only slurmctld's address from slurm.conf. So it needs no restart when
            # other lines change.
            pods.mount("config", c.SLURM_ETC, read_only=True),
            *args.site.user_mounts(),
        ],
    }
