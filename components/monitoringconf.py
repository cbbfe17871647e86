"""What Prometheus, Alertmanager and Grafana read; pure functions of the settings."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from components import conventions as c
from components.settings import Bundled, Settings

Document = dict[str, Any]

MONITORING_ETC = "/etc/slurmstack/monitoring"
"""Where the files of Prometheus and Alertmanager are mounted."""
ALERTMANAGER_ETC = "/etc/slurmstack/alertmanager"
"""Where Alertmanager's configuration is mounted."""
PROMETHEUS_FILE = "prometheus.yml"
ALERTMANAGER_FILE = "alertmanager.yml"
DASHBOARDS_ETC = "/etc/slurmstack/dashboards"
"""Where Grafana finds the dashboards."""

_FOLDER = Path(__file__).resolve().parent.parent / "monitoring"
_LONGEST_INTERVAL = 60
"""Seconds between two scrapes at most: Prometheus shows nothing that is older than five minutes."""
_DCGM = "app=nvidia-dcgm-exporter"
"""Label of DCGM exporter's pods as NVIDIA's GPU operator makes them; their port is `metrics`."""
DCGM_PORT = 9400
"""Where it listens by default."""
TELLING_PORTS = (25, 443, 465, 587)
"""Of mail, and of whatever else is told by https."""
_REPEAT = "12h"
"""After what time an alert that still fires is told again."""


def text(document: Document) -> str:
    """The document as YAML, the same for the same content."""
    return yaml.safe_dump(document, sort_keys=True, allow_unicode=True, width=1000)


# --- What is the same for everybody --------------------------------------------------------------


@cache
def rules() -> Mapping[str, Document]:
    """The files with alerts and recording rules, by name; see monitoring/alerts."""
    return {
        path.name: yaml.safe_load(path.read_text())
        for path in sorted((_FOLDER / "alerts").glob("*.yaml"))
    }


def dashboards() -> dict[str, str]:
    """The dashboards as JSON, by uid; see monitoring/dashboards."""
    found = sorted((_FOLDER / "dashboards" / "built").glob("*.json"))
    return {path.stem: path.read_text() for path in found}


# --- Who is scraped ------------------------------------------------------------------------------


def targets(settings: Settings) -> dict[str, str]:
    """The components that tell metrics in the namespace, by the names of their jobs."""
    long_checks = {"longchecks": c.LONG_CHECKS} if settings.long_checks.checks else {}
    logs = {"logs": c.LOGS} if settings.monitoring.logs else {}
    return {"slurm": c.EXPORTER, "reconciler": c.RECONCILER, **long_checks, **logs}


def scrape_interval(settings: Settings) -> int:
    """Seconds between two scrapes."""
    return min(settings.monitoring.exporter.interval, _LONGEST_INTERVAL)


# --- Prometheus and Alertmanager of our own ------------------------------------------------------


def files(settings: Settings) -> dict[str, str]:
    """What Prometheus and Alertmanager read, by file name, but for what is the operator's own."""
    bundled = settings.monitoring.bundled
    documents = {PROMETHEUS_FILE: prometheus(settings)}
    if not bundled.alertmanager_secret:
        documents[ALERTMANAGER_FILE] = alertmanager(bundled)
    return {**_rule_files(), **{name: text(document) for name, document in documents.items()}}


@cache
def _rule_files() -> Mapping[str, str]:
    """The rules as Prometheus reads them, without comments."""
    return {name: text(document) for name, document in rules().items()}


def prometheus(settings: Settings) -> Document:
    """Prometheus' configuration."""
    static = {
        **{job: (name, c.SCRAPED[name]) for job, name in targets(settings).items()},
        "prometheus": ("localhost", c.PROMETHEUS_PORT),
        "alertmanager": ("localhost", c.ALERTMANAGER_PORT),
    }
    interval = f"{scrape_interval(settings)}s"
    gpus = settings.dcgm_namespace()
    return {
        "global": {
            "scrape_interval": interval,
            "evaluation_interval": interval,
            "external_labels": {"cluster": settings.cluster_name},
        },
        "rule_files": [f"{MONITORING_ETC}/*.yaml"],
        "alerting": {"alertmanagers": [_at("localhost", c.ALERTMANAGER_PORT)]},
        "scrape_configs": [
            *(
                {"job_name": job, **_at(service, port)}
                for job, (service, port) in sorted(static.items())
            ),
            _pods("node", settings.namespace, f"{c.LABEL_COMPONENT}={c.MACHINES}"),
            *([_pods("dcgm", gpus, _DCGM)] if gpus else []),
        ],
    }


def _at(host: str, port: int) -> Document:
    return {"static_configs": [{"targets": [f"{host}:{port}"]}]}


def _pods(job: str, namespace: str, label: str) -> Document:
    """Pods with a label, one on each Kubernetes node, whose name is the label `machine`."""
    pod = "__meta_kubernetes_pod"
    return {
        "job_name": job,
        "kubernetes_sd_configs": [
            {
                "role": "pod",
                "namespaces": {"names": [namespace]},
                "selectors": [{"role": "pod", "label": label}],
            }
        ],
        "relabel_configs": [
            # Each port of a pod is a target, and so is a pod that has no address yet.
            _keep(f"{pod}_container_port_name", c.METRICS),
            _keep(f"{pod}_phase", "Running"),
            {"source_labels": [f"{pod}_node_name"], "target_label": "machine"},
        ],
    }


def _keep(label: str, value: str) -> Document:
    return {"action": "keep", "source_labels": [label], "regex": value}


def alertmanager(settings: Bundled) -> Document:
    """Alertmanager's configuration: all that fires goes to the webhook, where there is one."""
    posted = [{"url": settings.webhook, "send_resolved": True}]
    return {
        "route": {
            "receiver": "operator",
            "group_by": ["alertname"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": _REPEAT,
        },
        "receivers": [
            {"name": "operator", **({"webhook_configs": posted} if settings.webhook else {})}
        ],
    }


# --- Grafana -------------------------------------------------------------------------------------


def grafana(interval: int) -> dict[str, str]:
    """What Grafana is given: where the metrics are, scraped each `interval` seconds, and where the
    dashboards."""
    source = {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Prometheus",
                "uid": "prometheus",
                "type": "prometheus",
                "access": "proxy",
                "url": f"http://{c.MONITORING}:{c.PROMETHEUS_PORT}",
                "isDefault": True,
                # By which Grafana takes the rates of counters over long enough times.
                "jsonData": {"timeInterval": f"{interval}s"},
            }
        ],
    }
    provider = {
        "apiVersion": 1,
        "providers": [
            {
                "name": c.PROJECT,
                "type": "file",
                "allowUiUpdates": False,
                "options": {"path": DASHBOARDS_ETC},
            }
        ],
    }
    return {"datasources.yaml": text(source), "dashboards.yaml": text(provider)}


# --- For a Prometheus Operator -------------------------------------------------------------------


def service_monitor(job: str, component: str, interval: int) -> Document:
    """Spec of a ServiceMonitor for the Service of a component.

    Its series are the Service's, as where it is scraped by its name: they go on in another pod.
    """
    endpoint = {"port": c.METRICS, **_scraped_as(job, interval)}
    instance = f"{component}:{c.SCRAPED[component]}"
    endpoint["relabelings"].append({"targetLabel": "instance", "replacement": instance})
    return {
        "selector": {"matchLabels": {c.LABEL_COMPONENT: component}},
        "endpoints": [endpoint],
    }


def pod_monitor(job: str, component: str, interval: int) -> Document:
    """Spec of a PodMonitor for pods of a component, one on each Kubernetes node."""
    machine = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "machine"}
    endpoint = {"port": c.METRICS, **_scraped_as(job, interval)}
    endpoint["relabelings"].append(machine)
    return {
        "selector": {"matchLabels": {c.LABEL_COMPONENT: component}},
        "podMetricsEndpoints": [endpoint],
    }


def _scraped_as(job: str, interval: int) -> Document:
    """As our own Prometheus names it: dashboards and alerts ask by these labels."""
    dropped = ("container", "endpoint", "namespace", "pod", "service")
    return {
        "interval": f"{interval}s",
        "relabelings": [
            {"targetLabel": "job", "replacement": job},
            {"action": "labeldrop", "regex": "|".join(dropped)},
        ],
    }
