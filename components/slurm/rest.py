"""slurmrestd: Slurm's REST API, for clients with a token."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity.directory import People
from components.settings import Rest as RestSettings


@dataclass(frozen=True)
class RestArgs:
    namespace: pulumi.Input[str]
    settings: RestSettings
    images: pods.Images
    people: People
    accounts: pulumi.Input[str]
    """ConfigMap with passwd and group."""
    config: pulumi.Input[str]
    """ConfigMap with Slurm's configuration files."""
    daemons: Sequence[pulumi.Input[pods.Spec]]
    """Lines of /etc/hosts for slurmctld and slurmdbd."""
    accounting: bool
    """Whether there is a slurmdbd, whose API is then served as well."""


class Rest(pulumi.ComponentResource):
    """slurmrestd in its own pods, and its Service inside the cluster.

    It has no key: slurmctld verifies the token of each request.
    """

    url: pulumi.Output[str]
    """URL of the API, known once slurmrestd listens."""

    def __init__(
        self, name: str, args: RestArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("rest", "Rest"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        slurmrestd = k8s.apps.v1.Deployment(
            f"{name}-slurmrestd",
            metadata={"name": c.REST, "namespace": args.namespace},
            spec={
                "replicas": args.settings.replicas,
                "selector": {"matchLabels": pods.labels(c.REST)},
                "template": {
                    "metadata": {"labels": pods.labels(c.REST)},
                    "spec": {
                        **pods.pod_defaults(args.images),
                        "hostAliases": list(args.daemons),
                        **_init(args.people.sidecars(args.images)),
                        "containers": [_slurmrestd(args)],
                        "volumes": [
                            *args.people.volumes(),
                            pods.config_volume("config", args.config),
                            pods.users_volume(args.accounts),
                        ],
                    },
                },
            },
            opts=child,
        )
        service = k8s.core.v1.Service(
            f"{name}-service",
            metadata={"name": c.REST, "namespace": args.namespace},
            spec={
                "selector": slurmrestd.spec.selector.match_labels,
                "ports": pods.service_port("http", c.REST_PORT),
            },
            opts=child,
        )
        self.url = service.metadata.name.apply(lambda host: f"http://{host}:{c.REST_PORT}")
        self.register_outputs({"url": self.url})


def _init(containers: list[pods.Spec]) -> pods.Spec:
    return {"initContainers": containers} if containers else {}


def _parts(accounting: bool) -> pods.Spec:
    """Return the parts of Slurm's API to serve. By default, the image serves only slurmctld's."""
    if not accounting:
        return {}
    return {"env": [{"name": "SLURMRESTD_OPENAPI_PLUGINS", "value": "slurmctld,slurmdbd"}]}


def _slurmrestd(args: RestArgs) -> pods.Spec:
    return {
        "name": "slurmrestd",
        **pods.image("rest", args.images),
        **pods.security(user=c.REST_ID),
        **pods.requests("20m", "32Mi"),
        **_parts(args.accounting),
        "ports": [{"name": "http", "containerPort": c.REST_PORT}],
        **pods.answers(pods.open_port(c.REST_PORT)),
        "volumeMounts": [
            # It reads slurmctld's address here. Other changes do not concern it.
            pods.mount("config", c.SLURM_ETC, read_only=True),
            pods.users_mount(),
            *args.people.mounts(),
        ],
    }
