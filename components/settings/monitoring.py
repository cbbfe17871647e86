"""Settings of metrics, alerts and logs."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from components.settings.types import (
    Days,
    DnsLabel,
    ImageReference,
    LabelKey,
    LabelValue,
    MemoryMiB,
    Model,
    Number,
    ProjectFile,
    SecretName,
    SecretUrl,
    StorageClassName,
    Url,
    cross_field,
    endpoint_host,
)

_RECEIVERS: Final[Mapping[str, str]] = {
    "api.opsgenie.com": "opsgenie_configs",
    "api.telegram.org": "telegram_configs",
    "discord.com": "discord_configs",
    "events.pagerduty.com": "pagerduty_configs",
    "hooks.slack.com": "slack_configs",
    "webhook.office.com": "msteams_configs",
}
"""Services that refuse Alertmanager's own format: for each domain, the key in alertmanager.yml for
this service (source: https://prometheus.io/docs/alerting/latest/configuration)."""

_LOKI_PUSH: Final = "/loki/api/v1/push"
"""Loki's path for Promtail, which does not accept OpenTelemetry's protocol (source: Loki, HTTP
API)."""


class Exporter(Model):
    """The exporter, which offers Slurm's state as metrics for Prometheus."""

    enabled: bool = True
    interval: Annotated[int, Field(ge=5, le=600), Number] = 30
    """Seconds between two reads of Slurm's state, independent of Prometheus's scrape interval."""
    top: Annotated[int, Field(ge=0, le=1000), Number] = 50
    """Maximum number of accounts, and of users, that have their own series. The accounts and users
    whose running and pending jobs have the most CPUs come first. The exporter adds up the rest."""
    jobs: Annotated[int, Field(ge=0, le=100_000), Number] = 1000
    """Limit of exported pairs of a running job and one of its nodes. Jobs with the most CPUs are
    exported first. A job is exported with all of its nodes or not at all."""


class Grafana(Model):
    """The stack's own Grafana, with the data source and the dashboards."""

    enabled: bool = False
    image: ImageReference = "docker.io/grafana/grafana:11.6.0"
    """Grafana's official image, or a copy in another registry."""


class Bundled(Model):
    """The stack's own Prometheus and Alertmanager."""

    retention: Days = 30
    """Days to keep metrics, if the volume has space."""
    size: MemoryMiB = Field("50GiB", validate_default=True)
    """Size of the volume for Prometheus and Alertmanager."""
    storage_class: StorageClassName | None = None
    """StorageClass of the volume; by default the cluster's default."""
    webhook: SecretUrl | None = None
    """URL that Alertmanager posts alerts to, in Alertmanager's own format. Encrypt it if it
    contains a token. Its host and port are readable in the network policies."""
    alertmanager_secret: SecretName | None = None
    """Secret in the stack's namespace. Its entry `alertmanager.yml` replaces the stack's own
    configuration of Alertmanager, for mail, chats and on-call services."""
    grafana: Grafana = Field(default_factory=Grafana)

    @model_validator(mode="after")
    def _is_one_configuration(self) -> Self:
        if self.webhook and self.alertmanager_secret:
            raise cross_field(
                "webhook",
                "has no effect, because the Secret in alertmanager_secret contains the "
                "configuration; add this URL to alertmanager.yml in that Secret, and remove "
                "'webhook'",
            )
        return self

    @model_validator(mode="after")
    def _webhook_reads_alertmanagers_format(self) -> Self:
        # A tool without the passphrase knows only the encrypted URL. Then `url` is empty.
        url = self.webhook.get_secret_value() if self.webhook else ""
        host = endpoint_host(url)
        for domain, kind in _RECEIVERS.items():
            if host == domain or host.endswith(f".{domain}"):
                # Show only the host: the rest of the URL may be a credential.
                raise cross_field(
                    "webhook",
                    f"{host}: does not accept Alertmanager's own format; set alertmanager_secret "
                    f"to a Secret whose alertmanager.yml uses {kind}, and remove 'webhook'",
                )
        return self


class Operator(Model):
    """Objects for an existing Prometheus Operator, such as that of kube-prometheus-stack."""

    labels: dict[LabelKey, LabelValue] = {}
    """Labels of ServiceMonitors, PodMonitors and PrometheusRules; the operator's Prometheus selects
    them with these labels."""
    dashboard_labels: dict[LabelKey, LabelValue] = {"grafana_dashboard": "1"}
    """Labels of ConfigMaps with dashboards; Grafana selects them with these labels."""


class Logs(Model):
    """Receiver of the daemons' log lines. The stack uses the OpenTelemetry protocol over HTTP."""

    endpoint: Url
    """URL of the receiver without `/v1/logs`: an OpenTelemetry collector, such as
    `http://collector.monitoring:4318`, or Loki 3, such as `https://loki.example.org/otlp`."""
    headers_secret: SecretName | None = None
    """Secret in the stack's namespace; its entries are HTTP headers of the requests, such as
    `Authorization` or `X-Scope-OrgID`."""
    ca: ProjectFile | None = None
    """File with CA certificates (PEM) to verify the receiver: a path relative to the project, read
    at deploy time. The default is Debian's CA certificates."""
    level: Literal["debug", "info", "warn", "error", "fatal"] = "info"
    """Lowest level to send."""

    @model_validator(mode="after")
    def _is_above_the_protocols_path(self) -> Self:
        server, found, _ = self.endpoint.partition(_LOKI_PUSH)
        if found:
            raise cross_field(
                "endpoint",
                f"{self.endpoint}: is Loki's path for Promtail; expected Loki's path for "
                f"OpenTelemetry: {server}/otlp",
            )
        if "?" in self.endpoint or self.endpoint.rstrip("/").endswith("/v1/logs"):
            raise cross_field(
                "endpoint",
                f"{self.endpoint}: expected a URL without a query and without /v1/logs, which the "
                "stack adds; remove these parts",
            )
        return self


class Monitoring(Model):
    """Metrics, alerts and logs."""

    kind: Literal["bundled", "operator", "none"] = "bundled"
    """Collector of metrics. bundled: the stack's own Prometheus; operator: an existing
    Prometheus Operator; none: the stack configures no collector."""
    bundled: Bundled = Field(default_factory=Bundled)
    operator: Operator = Field(default_factory=Operator)
    dcgm_namespace: DnsLabel | None = None
    """With kind: bundled, the namespace in which NVIDIA's GPU operator runs DCGM exporter, for
    metrics of GPUs. By default the namespace of the GPU operator that the stack installs."""
    scrape_from: tuple[DnsLabel, ...] = ("monitoring",)
    """Kubernetes namespaces whose pods may scrape the stack's metrics."""
    exporter: Exporter = Field(default_factory=Exporter)
    logs: Logs | None = None
    """Receiver of the daemons' log lines; by default nothing is sent."""

    @model_validator(mode="after")
    def _parts_fit_kind(self) -> Self:
        for part in ("bundled", "operator"):
            if part in self.model_fields_set and self.kind != part:
                raise cross_field(
                    part,
                    f"has no effect, because monitoring.kind is not '{part}'; set "
                    f"monitoring.kind to '{part}', or remove monitoring.{part}",
                )
        if self.dcgm_namespace and self.kind != "bundled":
            raise cross_field(
                "dcgm_namespace",
                f"{self.dcgm_namespace}: has no effect, because monitoring.kind is not 'bundled'; "
                "remove monitoring.dcgm_namespace",
            )
        if self.kind != "none" and not self.exporter.enabled:
            raise cross_field(
                "exporter.enabled",
                f"false: monitoring.kind '{self.kind}' requires the exporter; remove 'enabled: "
                "false', or set monitoring.kind to 'none'",
            )
        return self
