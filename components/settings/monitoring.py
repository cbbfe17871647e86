"""How the cluster is watched."""

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
    """Seconds from one read of Slurm to the next, however often it is scraped."""
    top: Annotated[int, Field(ge=0, le=1000), Number] = 50
    """Accounts, and users, that have series of their own, the largest by CPUs that their jobs have
    or wait for; the others are counted together."""
    jobs: Annotated[int, Field(ge=0, le=100_000), Number] = 1000
    """Pairs of a job that runs and one of its nodes that are shown, those of the jobs with the most
    CPUs first; a job is shown with all of its nodes or not at all."""


class Grafana(Model):
    """A Grafana of the stack's own, with the data source and the dashboards."""

    enabled: bool = False
    image: ImageReference = "docker.io/grafana/grafana:11.6.0"
    """Its official image, or a mirror's copy."""


class Bundled(Model):
    """Prometheus and Alertmanager of the stack's own."""

    retention: Annotated[int, Field(ge=1, le=3650), Number] = 30
    """Days that metrics are kept for, as far as the volume has room."""
    size: MemoryMiB = Field("50GiB", validate_default=True)
    """Size of their volume."""
    storage_class: str | None = None
    """Class of that volume; by default the cluster's default class."""
    webhook: Url | None = None
    """Where Alertmanager posts alerts, in its own form. The address is no secret in the cluster."""
    alertmanager_secret: Domain | None = None
    """Secret of the namespace whose entry `alertmanager.yml` is Alertmanager's configuration, in
    place of ours, for mail, chats and on-call services."""
    grafana: Grafana = Field(default_factory=Grafana)

    @model_validator(mode="after")
    def _is_one_configuration(self) -> Self:
        if self.webhook and self.alertmanager_secret:
            raise cross_field(
                "webhook",
                f"{self.webhook}: counts not with alertmanager_secret; name it in that one's file",
            )
        return self


class Operator(Model):
    """Objects for a Prometheus Operator that is there, as of kube-prometheus-stack."""

    labels: dict[LabelKey, LabelValue] = {}
    """Labels by which its Prometheus finds ServiceMonitors, PodMonitors and PrometheusRules."""
    dashboard_labels: dict[LabelKey, LabelValue] = {"grafana_dashboard": "1"}
    """Labels by which its Grafana finds ConfigMaps with dashboards."""


class Logs(Model):
    """What the daemons say, sent to a collector that takes OpenTelemetry's protocol over HTTP."""

    endpoint: Url
    """Address above the protocol's own `/v1/logs`: of an OpenTelemetry collector, as
    `http://collector.monitoring:4318`, or of Loki 3, which has it below `/otlp`."""
    headers_secret: Domain | None = None
    """Secret of the namespace whose entries are headers of the requests, as `Authorization` or
    `X-Scope-OrgID`."""
    ca: ProjectFile | None = None
    """File of the project with the certificates that vouch for the receiver; by default Debian's.
    It is read when the program runs."""
    level: Literal["debug", "info", "warn", "error", "fatal"] = "info"
    """The least that is sent."""

    @model_validator(mode="after")
    def _is_above_the_protocols_path(self) -> Self:
        if "?" in self.endpoint or self.endpoint.rstrip("/").endswith("/v1/logs"):
            raise cross_field(
                "endpoint", f"{self.endpoint}: expected what is above /v1/logs; leave the rest out"
            )
        return self


class Monitoring(Model):
    """How the cluster is watched."""

    kind: Literal["bundled", "operator", "none"] = "bundled"
    """Who gathers the metrics: a Prometheus of the stack's own, one that is there and is run by its
    operator, or nobody that the stack knows of."""
    bundled: Bundled = Field(default_factory=Bundled)
    operator: Operator = Field(default_factory=Operator)
    dcgm_namespace: DnsLabel | None = None
    """Namespace in which NVIDIA's GPU operator runs DCGM exporter, for metrics of GPUs; by default
    where the stack installs that operator."""
    scrape_from: tuple[DnsLabel, ...] = ("monitoring",)
    """Namespaces of Kubernetes whose pods may scrape, by `network.policies`."""
    exporter: Exporter = Field(default_factory=Exporter)
    logs: Logs | None = None
    """Where the daemons' lines are sent; by default nowhere."""

    @model_validator(mode="after")
    def _says_nothing_of_another_kind(self) -> Self:
        for part in ("bundled", "operator"):
            if part in self.model_fields_set and self.kind != part:
                raise cross_field(part, f"counts only with kind: {part}; leave it out, or set that")
        if self.dcgm_namespace and self.kind != "bundled":
            raise cross_field(
                "dcgm_namespace",
                f"{self.dcgm_namespace}: counts only with kind: bundled; leave it out",
            )
        if self.kind != "none" and not self.exporter.enabled:
            raise cross_field(
                "exporter.enabled", f"false: kind: {self.kind} needs it; set kind: none, or drop it"
            )
        return self
