"""Render the configuration files of Prometheus, Alertmanager and Grafana from the settings."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from components import conventions as c
from components.settings import Bundled, Settings

Document = dict[str, Any]

MONITORING_ETC = "/etc/slurmstack/monitoring"
"""Mount point of the files of Prometheus and Alertmanager."""
ALERTMANAGER_ETC = "/etc/slurmstack/alertmanager"
"""Mount point of Alertmanager's configuration."""
PROMETHEUS_FILE = "prometheus.yml"
ALERTMANAGER_FILE = "alertmanager.yml"
DASHBOARDS_ETC = "/etc/slurmstack/dashboards"
"""Folder of Grafana's dashboards."""

_FOLDER = Path(__file__).resolve().parents[2] / "monitoring"
_LONGEST_INTERVAL = 60
"""Longest time in seconds between two scrapes. It must be short, because Prometheus ignores values
that are older than five minutes."""
_DCGM = "app=nvidia-dcgm-exporter"
"""Label of DCGM exporter's pods from NVIDIA's GPU operator; their port is named `metrics`."""
DCGM_PORT = 9400
"""Default port of DCGM exporter."""
TELLING_PORTS = (25, 443, 465, 587)
"""Ports of the servers to which Alertmanager sends notifications: ports of mail servers, and the
port of HTTPS for all other servers."""
_BRIDGE_RULES = "bridge.yaml"
"""File with alerts that fire if a stack has no bridge."""
_REPEAT = "12h"
"""Time after which Alertmanager sends a notification again if its alert still fires."""


def text(document: Document) -> str:
    """Render the document as YAML. The same content always gives the same text."""
    return yaml.safe_dump(document, sort_keys=True, allow_unicode=True, width=1000)


# --- Rules and dashboards, the same for all sites ------------------------------------------------


def rules(settings: Settings) -> dict[str, Document]:
    """Return the files with alerts and recording rules, by name; see monitoring/alerts."""
    absent = set() if settings.bridge else {_BRIDGE_RULES}
    return {name: document for name, document in _all_rules().items() if name not in absent}


@cache
def _all_rules() -> Mapping[str, Document]:
    return {
        path.name: yaml.safe_load(path.read_text())
        for path in sorted((_FOLDER / "alerts").glob("*.yaml"))
    }


def dashboards() -> dict[str, str]:
    """Return the dashboards as JSON, by uid; see monitoring/dashboards."""
    found = sorted((_FOLDER / "dashboards" / "built").glob("*.json"))
    return {path.stem: path.read_text() for path in found}


# --- Targets -------------------------------------------------------------------------------------


def targets(settings: Settings) -> dict[str, str]:
    """Return the components with one pod that has metrics. Keys are the names of their scrape
    jobs."""
    long_checks = {"longchecks": c.LONG_CHECKS} if settings.long_checks.checks else {}
    logs = {"logs": c.LOGS} if settings.monitoring.logs else {}
    return {"slurm": c.EXPORTER, "reconciler": c.RECONCILER, **long_checks, **logs}


def pod_targets(settings: Settings) -> dict[str, str]:
    """Return the components with several pods that have metrics. Keys are the names of their scrape
    jobs."""
    bridge = {"bridge": c.BRIDGE} if settings.bridge else {}
    return {"node": c.NODE_EXPORTER, **bridge}


def scrape_interval(settings: Settings) -> int:
    """Return the seconds between two scrapes."""
    return min(settings.monitoring.exporter.interval, _LONGEST_INTERVAL)


# --- Bundled Prometheus and Alertmanager ---------------------------------------------------------


def files(settings: Settings) -> dict[str, str]:
    """Return Prometheus' files by name. The files of rules have no comments."""
    texts = _rule_texts()
    return {
        **{name: texts[name] for name in rules(settings)},
        PROMETHEUS_FILE: text(prometheus(settings)),
    }


@cache
def _rule_texts() -> Mapping[str, str]:
    return {name: text(document) for name, document in _all_rules().items()}


def prometheus(settings: Settings) -> Document:
    """Return Prometheus' configuration."""
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
            *(
                _pods(job, settings.namespace, f"{c.LABEL_COMPONENT}={component}")
                for job, component in pod_targets(settings).items()
            ),
            *([_pods("dcgm", gpus, _DCGM)] if gpus else []),
        ],
    }


def _at(host: str, port: int) -> Document:
    return {"static_configs": [{"targets": [f"{host}:{port}"]}]}


def _pods(job: str, namespace: str, label: str) -> Document:
    """Return a scrape job for pods that have a label.

    The label `machine` of the metrics has the name of the pod's Kubernetes node.
    """
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
            # Keep only the port for metrics. Otherwise, each port of a pod would be a target, even
            # before the pod has an address.
            _keep(f"{pod}_container_port_name", c.METRICS),
            _keep(f"{pod}_phase", "Running"),
            {"source_labels": [f"{pod}_node_name"], "target_label": "machine"},
        ],
    }


def _keep(label: str, value: str) -> Document:
    return {"action": "keep", "source_labels": [label], "regex": value}


def alertmanager(settings: Bundled) -> str:
    """Return a configuration of Alertmanager that sends all alerts to the webhook, if the settings
    have one.

    Keep the result secret, because the webhook's URL may contain a token.
    """
    url = settings.webhook.get_secret_value() if settings.webhook else None
    document = {
        "route": {
            "receiver": "operator",
            "group_by": ["alertname"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": _REPEAT,
        },
        "receivers": [
            {
                "name": "operator",
                **({"webhook_configs": [{"url": url, "send_resolved": True}]} if url else {}),
            }
        ],
    }
    return text(document)


# --- Grafana -------------------------------------------------------------------------------------


def grafana(interval: int) -> dict[str, str]:
    """Return Grafana's provisioning files, which define the data source and the folder of
    dashboards.

    Prometheus scrapes every `interval` seconds.
    """
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
                # Report the interval of scrapes: from it, Grafana derives the shortest time range
                # for the rate of a counter.
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
    """Return the spec of a ServiceMonitor for the Service of a component.

    The label `instance` contains the Service's name, as in the bundled Prometheus. So the time
    series of a pod continue with the pod that replaces it.
    """
    endpoint = {"port": c.METRICS, **_scraped_as(job, interval)}
    instance = f"{component}:{c.SCRAPED[component]}"
    endpoint["relabelings"].append({"targetLabel": "instance", "replacement": instance})
    return {
        "selector": {"matchLabels": {c.LABEL_COMPONENT: component}},
        "endpoints": [endpoint],
    }


def pod_monitor(job: str, component: str, interval: int) -> Document:
    """Return the spec of a PodMonitor for a component of which each pod has its own metrics."""
    machine = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "machine"}
    endpoint = {"port": c.METRICS, **_scraped_as(job, interval)}
    endpoint["relabelings"].append(machine)
    return {
        "selector": {"matchLabels": {c.LABEL_COMPONENT: component}},
        "podMetricsEndpoints": [endpoint],
    }


def _scraped_as(job: str, interval: int) -> Document:
    """Return endpoint fields that set the same labels as the bundled Prometheus.

    Dashboards and alerts depend on these labels.
    """
    dropped = ("container", "endpoint", "namespace", "pod", "service")
    return {
        "interval": f"{interval}s",
        "relabelings": [
            {"targetLabel": "job", "replacement": job},
            {"action": "labeldrop", "regex": "|".join(dropped)},
        ],
    }
