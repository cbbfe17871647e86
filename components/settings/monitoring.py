"""Settings of metrics, alerts and logs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from components.settings.types import (
    DnsLabel,
    Domain,
    ImageReference,
    LabelKey,
    LabelValue,
    MemoryMiB,
    Model,
    Number,
    ProjectFile,
    Url,
    cross_field,
)


class Exporter(Model):
    """Slurm's state as metrics for Prometheus."""

    enabled: bool = True
    interval: Annotated[int, Field(ge=5, le=600), Number] = 30
    """Seconds between two reads of Slurm, however often Prometheus scrapes."""
    top: Annotated[int, Field(ge=0, le=1000), Number] = 50
    """Number of accounts, and of users, with their own series: the largest by CPUs of their running
    and waiting jobs. The others are summed."""
    jobs: Annotated[int, Field(ge=0, le=100_000), Number] = 1000
    """Limit of exported pairs of a running job and one of its nodes; jobs with the most CPUs come
    first. A job is exported with all of its nodes or not at all."""


class Grafana(Model):
    """The stack's own Grafana, with the data source and the dashboards."""

    enabled: bool = False
    image: ImageReference = "docker.io/grafana/grafana:11.6.0"
    """The official image of Grafana, or a mirror's copy."""


class Bundled(Model):
    """The stack's own Prometheus and Alertmanager."""

    retention: Annotated[int, Field(ge=1, le=3650), Number] = 30
    """Days to keep metrics, as far as the volume has space."""
    size: MemoryMiB = Field("50GiB", validate_default=True)
    """Size of the volume of both."""
    storage_class: str | None = None
    """Class of that volume; by default the cluster's default class."""
    webhook: Url | None = None
    """Address that Alertmanager posts alerts to, in its own format. It is not secret in the
    cluster."""
    alertmanager_secret: Domain | None = None
    """Secret of the namespace; its entry `alertmanager.yml` is Alertmanager's configuration,
    instead of the stack's, for mail, chats and on-call services."""
    grafana: Grafana = Field(default_factory=Grafana)

    @model_validator(mode="after")
    def _is_one_configuration(self) -> Self:
        if self.webhook and self.alertmanager_secret:
            raise cross_field(
                "webhook",
                f"{self.webhook}: has no effect with alertmanager_secret; add it to the secret's "
                "alertmanager.yml instead",
            )
        return self


class Operator(Model):
    """Objects for an existing Prometheus Operator, as kube-prometheus-stack's."""

    labels: dict[LabelKey, LabelValue] = {}
    """Labels by which its Prometheus selects ServiceMonitors, PodMonitors and PrometheusRules."""
    dashboard_labels: dict[LabelKey, LabelValue] = {"grafana_dashboard": "1"}
    """Labels by which its Grafana selects ConfigMaps with dashboards."""


class Logs(Model):
    """Daemons' log lines, sent to a receiver by OpenTelemetry's protocol over HTTP."""

    endpoint: Url
    """Address of the receiver, without the protocol's own `/v1/logs`: an OpenTelemetry collector,
    as `http://collector.monitoring:4318`, or Loki 3, as `https://loki.example.org/otlp`."""
    headers_secret: Domain | None = None
    """Secret of the namespace; its entries are headers of the requests, as `Authorization` or
    `X-Scope-OrgID`."""
    ca: ProjectFile | None = None
    """File with certificates (PEM) that verify the receiver, relative to the project; read at
    deploy time. By default Debian's."""
    level: Literal["debug", "info", "warn", "error", "fatal"] = "info"
    """Lowest level to send."""

    @model_validator(mode="after")
    def _is_above_the_protocols_path(self) -> Self:
        if "?" in self.endpoint or self.endpoint.rstrip("/").endswith("/v1/logs"):
            raise cross_field(
                "endpoint",
                f"{self.endpoint}: expected an address without /v1/logs and without a query",
            )
        return self


class Monitoring(Model):
    """Metrics, alerts and logs."""

    kind: Literal["bundled", "operator", "none"] = "bundled"
    """Collector of metrics. bundled: the stack's own Prometheus; operator: an existing Prometheus
    Operator; none: no collector that the stack knows."""
    bundled: Bundled = Field(default_factory=Bundled)
    operator: Operator = Field(default_factory=Operator)
    dcgm_namespace: DnsLabel | None = None
    """Namespace in which NVIDIA's GPU operator runs DCGM exporter, for metrics of GPUs, with kind
    bundled; by default that of an operator that the stack installs."""
    scrape_from: tuple[DnsLabel, ...] = ("monitoring",)
    """Kubernetes namespaces with pods that may scrape, under `network.policies`."""
    exporter: Exporter = Field(default_factory=Exporter)
    logs: Logs | None = None
    """Receiver of the daemons' log lines; by default nothing is sent."""

    @model_validator(mode="after")
    def _parts_fit_kind(self) -> Self:
        for part in ("bundled", "operator"):
            if part in self.model_fields_set and self.kind != part:
                raise cross_field(
                    part, f"has no effect without kind: {part}; set that, or remove {part}"
                )
        if self.dcgm_namespace and self.kind != "bundled":
            raise cross_field(
                "dcgm_namespace",
                f"{self.dcgm_namespace}: has no effect without kind: bundled; remove it",
            )
        if self.kind != "none" and not self.exporter.enabled:
            raise cross_field(
                "exporter.enabled",
                f"false: kind: {self.kind} requires the exporter; set true, or set kind: none",
            )
        return self
