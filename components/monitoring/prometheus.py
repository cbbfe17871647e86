"""Prometheus, Alertmanager and Grafana, or objects for an existing Prometheus Operator; see
docs/monitoring.md."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from components import conventions as c
from components import pods
from components.identity import rights
from components.monitoring import monitoringconf
from components.monitoring.grafana import Grafana, GrafanaArgs, dashboard
from components.settings import Bundled, Settings
from components.site import Site

_DATA = "/var/lib/monitoring"
_FULL = 0.9
"""Share of the volume that stored metrics may use. The rest stays free for data that Prometheus is
just writing."""
_OPERATOR_API = "monitoring.coreos.com/v1"


@dataclass(frozen=True)
class MonitoringArgs:
    site: Site
    settings: Settings


class Monitoring(pulumi.ComponentResource):
    """Prometheus with Alertmanager, or the objects with which a Prometheus Operator monitors the
    stack."""

    def __init__(
        self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(c.type_token("monitoring", "Monitoring"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        if args.settings.monitoring.kind == "operator":
            _for_operator(name, args, child)
        else:
            _bundled(name, args, args.settings.monitoring.bundled, child)
        self.register_outputs({})


# --- Bundled Prometheus and Alertmanager ---------------------------------------------------------


def _bundled(
    name: str, args: MonitoringArgs, settings: Bundled, opts: pulumi.ResourceOptions
) -> None:
    account = rights.account(name, c.MONITORING, args.site.namespace, opts)
    finds = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    granted = [rights.grant(name, account, args.site.namespace, finds, opts)]
    if gpus := args.settings.dcgm_namespace():
        granted.append(rights.grant(f"{name}-dcgm", account, gpus, finds, opts, "dcgm"))
    config = monitoringconf.files(args.settings)
    files = pods.config_map(
        f"{name}-config", c.MONITORING_CONFIG, args.site.namespace, config, opts
    ).metadata.name
    alerting = settings.alertmanager_secret
    if alerting is None:
        text = monitoringconf.alertmanager(settings)
        config = {**config, monitoringconf.ALERTMANAGER_FILE: text}
        alerting = pods.secret(
            f"{name}-alertmanager",
            c.ALERTMANAGER_SECRET,
            args.site.namespace,
            {monitoringconf.ALERTMANAGER_FILE: pulumi.Output.secret(text)},
            opts,
        ).metadata.name
    data = pods.claim(
        f"{name}-data",
        c.MONITORING_CLAIM,
        args.site.namespace,
        pods.Volume("ReadWriteOnce", settings.size, settings.storage_class),
        pulumi.ResourceOptions(parent=opts.parent, protect=args.settings.protect_data),
    )
    server = k8s.apps.v1.StatefulSet(
        f"{name}-server",
        metadata={"name": c.MONITORING, "namespace": args.site.namespace},
        spec=pods.workload(
            c.MONITORING,
            _pod(args, settings, account, data.metadata.name, files, alerting),
            # Restart Prometheus and Alertmanager when a file changes, although both can reload
            # their files. If a file is invalid, the deploy fails after a restart, but would succeed
            # after a reload.
            {c.ANNOTATION_CHECKSUM: c.checksum(config)},
            replicas=1,
            serviceName=c.MONITORING,
        ),
        opts=pulumi.ResourceOptions(parent=opts.parent, depends_on=granted),
    )
    ports = [
        *pods.service_port("prometheus", c.PROMETHEUS_PORT),
        *pods.service_port("alertmanager", c.ALERTMANAGER_PORT),
    ]
    pods.service(f"{name}-service", c.MONITORING, args.site.namespace, server, ports, opts)
    if settings.grafana.enabled:
        Grafana(
            args.site.named("grafana"),
            GrafanaArgs(
                args.site,
                settings.grafana.image,
                monitoringconf.scrape_interval(args.settings),
            ),
            pulumi.ResourceOptions(parent=opts.parent),
        )


def _pod(
    args: MonitoringArgs,
    settings: Bundled,
    account: rights.Account,
    data: pulumi.Input[str],
    files: pulumi.Input[str],
    alerting: pulumi.Input[str],
) -> pods.Spec:
    return {
        **args.site.pod(c.MONITORING),
        **rights.token(account),
        **pods.owned_by(c.MONITORING_ID),
        "containers": [
            _prometheus(args.site, settings),
            _alertmanager(args.site.images),
        ],
        "volumes": [
            pods.claim_volume("data", data),
            pods.config_volume("config", files),
            pods.secret_volume("alertmanager", alerting),
        ],
    }


def _prometheus(site: Site, settings: Bundled) -> pods.Spec:
    options = {
        "config.file": f"{monitoringconf.MONITORING_ETC}/{monitoringconf.PROMETHEUS_FILE}",
        "storage.tsdb.path": f"{_DATA}/prometheus",
        "storage.tsdb.retention.time": f"{settings.retention}d",
        "storage.tsdb.retention.size": f"{int(settings.size * _FULL)}MB",
        "web.listen-address": f":{c.PROMETHEUS_PORT}",
    }
    command = _reading(monitoringconf.MONITORING_ETC, "prometheus", options)
    return {
        **_server("prometheus", command, c.PROMETHEUS_PORT, site.images),
        **site.requests(c.MONITORING, "50m", "256Mi"),
        "volumeMounts": [
            pods.mount("data", _DATA),
            pods.mount("config", monitoringconf.MONITORING_ETC, read_only=True),
        ],
    }


def _alertmanager(images: pods.Images) -> pods.Spec:
    options = {
        "config.file": f"{monitoringconf.ALERTMANAGER_ETC}/{monitoringconf.ALERTMANAGER_FILE}",
        "storage.path": f"{_DATA}/alertmanager",
        "web.listen-address": f":{c.ALERTMANAGER_PORT}",
        # Turn off the cluster of Alertmanagers, because only one runs.
        "cluster.listen-address": "",
    }
    command = _reading(monitoringconf.ALERTMANAGER_ETC, "prometheus-alertmanager", options)
    return {
        **_server("alertmanager", command, c.ALERTMANAGER_PORT, images),
        **pods.requests("10m", "64Mi"),
        "volumeMounts": [
            pods.mount("data", _DATA),
            pods.mount("alertmanager", monitoringconf.ALERTMANAGER_ETC, read_only=True),
        ],
    }


def _reading(folder: str, program: str, options: Mapping[str, str]) -> list[str]:
    """Return the command that starts `program` through the script `serve`.

    When files in `folder` change, `serve` tells the program to reload them.
    """
    arguments = (f"--{option}={value}" for option, value in options.items())
    return [f"{c.PROGRAMS}/serve", folder, program, *arguments]


def _server(name: str, command: list[str], port: int, images: pods.Images) -> pods.Spec:
    return {
        "name": name,
        **pods.image("monitoring", images),
        "command": command,
        **pods.security(user=c.MONITORING_ID),
        "ports": [{"name": name, "containerPort": port}],
        **pods.probes(pods.page("/-/ready", port)),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


# --- For a Prometheus Operator -------------------------------------------------------------------


def _for_operator(name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions) -> None:
    wanted = args.settings.monitoring.operator
    interval = monitoringconf.scrape_interval(args.settings)

    def create(kind: str, called: str, spec: monitoringconf.Document) -> None:
        k8s.apiextensions.CustomResource(
            f"{name}-{kind.lower()}-{called}",
            api_version=_OPERATOR_API,
            kind=kind,
            metadata={"name": called, "namespace": args.site.namespace, "labels": wanted.labels},
            spec=spec,
            opts=opts,
        )

    for job, component in monitoringconf.targets(args.settings).items():
        create("ServiceMonitor", job, monitoringconf.service_monitor(job, component, interval))
    for job, component in monitoringconf.pod_targets(args.settings).items():
        create("PodMonitor", job, monitoringconf.pod_monitor(job, component, interval))
    for file, rules in monitoringconf.rules(args.settings).items():
        create("PrometheusRule", f"{c.PROJECT}-{file.removesuffix('.yaml')}", rules)
    for uid, content in monitoringconf.dashboards().items():
        dashboard(uid, content, args.site, wanted.dashboard_labels, opts)
