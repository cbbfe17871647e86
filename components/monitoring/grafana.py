"""Grafana with its data source and the dashboards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from components import conventions as c
from components import pods
from components.monitoring import monitoringconf
from components.site import Site

_PASSWORD = "/etc/slurmstack/grafana_admin"
"""Mount point of the Secret with the password of `admin`, in the file `password`."""
_PROVISIONING = "/etc/grafana/provisioning"
"""Folder in which Grafana's image looks for provisioning files."""
_QUIET = {
    "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    "GF_ANALYTICS_REPORTING_ENABLED": "false",
    "GF_USERS_ALLOW_SIGN_UP": "false",
}
"""Options: Grafana contacts no other server, sends no reports, and has no sign-up."""


@dataclass(frozen=True)
class GrafanaArgs:
    site: Site
    image: str
    interval: int
    """Seconds between two scrapes of the same pod by Prometheus."""


class Grafana(pulumi.ComponentResource):
    """One pod that shows the project's dashboards. It stores nothing: changes that users make in
    Grafana are lost when the pod ends."""

    def __init__(
        self, name: str, args: GrafanaArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("grafana", "Grafana"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        password = random.RandomPassword(f"{name}-password", length=32, special=False, opts=child)
        secret = pods.secret(
            f"{name}-secret",
            c.GRAFANA_SECRET,
            args.site.namespace,
            {"password": password.result},
            child,
        )
        given = monitoringconf.grafana(args.interval)
        config = pods.config_map(
            f"{name}-config", c.GRAFANA_CONFIG, args.site.namespace, given, child
        )
        shown = monitoringconf.dashboards()
        sources = [
            {"configMap": {"name": dashboard(uid, content, args.site, {}, child)}}
            for uid, content in shown.items()
        ]
        deployment = k8s.apps.v1.Deployment(
            f"{name}-server",
            metadata={"name": c.GRAFANA, "namespace": args.site.namespace},
            spec=pods.workload(
                c.GRAFANA,
                _pod(args, secret.metadata.name, config.metadata.name, sources, given),
                {c.ANNOTATION_CHECKSUM: c.checksum({**given, **shown})},
                **pods.ALONE,
            ),
            opts=child,
        )
        pods.service(
            f"{name}-service",
            c.GRAFANA,
            args.site.namespace,
            deployment,
            pods.service_port("grafana", c.GRAFANA_PORT),
            child,
        )
        self.register_outputs({})


def _pod(
    args: GrafanaArgs,
    secret: pulumi.Input[str],
    config: pulumi.Input[str],
    sources: list[pods.Spec],
    given: Mapping[str, str],
) -> pods.Spec:
    mounted = [
        pods.mounted(pods.disk_volume("data"), "/var/lib/grafana"),
        pods.mounted(pods.secret_volume("password", secret), _PASSWORD, read_only=True),
        pods.mounted(
            {"name": "dashboards", "projected": {"sources": sources}},
            monitoringconf.DASHBOARDS_ETC,
            read_only=True,
        ),
    ]
    return {
        **args.site.pod(c.GRAFANA),
        "securityContext": {"fsGroup": c.MONITORING_ID},
        "containers": [_container(args, given, mounted)],
        "volumes": [pods.config_volume("config", config), *pods.volumes(mounted)],
    }


def _container(
    args: GrafanaArgs, given: Mapping[str, str], mounted: Sequence[pods.Mounted]
) -> pods.Spec:
    environment = {
        "GF_SERVER_HTTP_PORT": str(c.GRAFANA_PORT),
        "GF_SECURITY_ADMIN_PASSWORD__FILE": f"{_PASSWORD}/password",
        **_QUIET,
    }
    return {
        "name": "grafana",
        "image": args.image,
        "imagePullPolicy": "IfNotPresent",
        "env": pods.environment(dict(sorted(environment.items()))),
        **pods.security(user=c.MONITORING_ID),
        **args.site.requests(c.GRAFANA, "20m", "128Mi"),
        "ports": [{"name": "grafana", "containerPort": c.GRAFANA_PORT}],
        **pods.probes(pods.page("/api/health", c.GRAFANA_PORT)),
        "volumeMounts": [
            # Mount each kind of file in its own folder, because Grafana reads them from separate
            # folders.
            *(
                {
                    **pods.mount(
                        "config",
                        f"{_PROVISIONING}/{name.removesuffix('.yaml')}/{name}",
                        read_only=True,
                    ),
                    "subPath": name,
                }
                for name in given
            ),
            *pods.mounts(mounted),
        ],
    }


def dashboard(
    uid: str,
    content: str,
    site: Site,
    labels: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str]:
    """Create a ConfigMap with one dashboard, and return its name."""
    made = k8s.core.v1.ConfigMap(
        site.named(f"dashboard-{uid}"),
        metadata={
            "name": f"dashboard-{uid}",
            "namespace": site.namespace,
            **({"labels": dict(labels)} if labels else {}),
        },
        data={f"{uid}.json": content},
        opts=opts,
    )
    name: pulumi.Output[str] = made.metadata.name
    return name
