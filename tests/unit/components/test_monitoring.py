"""Tests of monitoring: its pods and their rights, the scrape configuration, and the receivers of
alerts."""

from typing import Any

import pytest
import yaml

from components import conventions as c
from components.monitoring import monitoringconf
from tests.support.graph import SECRET_SIGNATURE, Graph, opened, pod, record, templates
from tests.support.stack import config, settings

Spec = dict[str, Any]
SERVER, MACHINES, GRAFANA = "monitoring-server", "machines-exporter", "grafana-server"
KINDS = "kubernetes:monitoring.coreos.com/v1:"


def graph(monkeypatch: pytest.MonkeyPatch, **monitoring: Any) -> Graph:
    return record(monkeypatch, config(lambda values: values.update(monitoring=monitoring)))


@pytest.fixture(scope="module")
def default() -> Graph:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record(monkeypatch, config(lambda values: None))


def containers(found: Graph) -> dict[str, Spec]:
    return {one["name"]: one for one in pod(found, SERVER)["containers"]}


def options(container: Spec) -> dict[str, str]:
    words = container["command"]
    return dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))


def read(found: Graph, name: str) -> Spec:
    """Return one file of Prometheus's ConfigMap, as data."""
    document: Spec = yaml.safe_load(found.one("monitoring-config").inputs["data"][name])
    return document


def alertmanager(found: Graph) -> Spec:
    """Return Alertmanager's own configuration, as data."""
    data = found.one("monitoring-alertmanager").inputs["stringData"]
    document: Spec = yaml.safe_load(opened(data)["alertmanager.yml"])
    return document


def jobs(found: Graph) -> dict[str, Spec]:
    scraped = read(found, "prometheus.yml")["scrape_configs"]
    return {job["job_name"]: job for job in scraped}


# --- Prometheus and Alertmanager -----------------------------------------------------------------


def test_prometheus_runs_without_root_and_may_only_find_pods(default: Graph) -> None:
    for container in containers(default).values():
        context = container["securityContext"]
        assert context["runAsUser"] == c.MONITORING_ID
        assert context["capabilities"] == {"drop": ["ALL"]}
    role = default.one("monitoring-role").inputs
    assert role["metadata"]["namespace"] == "slurm"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    assert not [one for one in default.resources if one.name == "monitoring-cluster-role"]


def test_retention_leaves_a_tenth_of_the_volume_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = graph(monkeypatch, bundled={"retention": 7, "size": "10GiB"})

    claim = found.one("monitoring-data")
    assert claim.inputs["spec"]["resources"]["requests"]["storage"] == "10240Mi"
    chosen = options(containers(found)["prometheus"])
    assert chosen["storage.tsdb.retention.time"] == "7d"
    assert chosen["storage.tsdb.retention.size"] == "9216MB"
    mounts = {
        one["name"]: one["mountPath"] for one in containers(found)["prometheus"]["volumeMounts"]
    }
    assert chosen["storage.tsdb.path"].startswith(mounts["data"] + "/")


@pytest.mark.parametrize("protect", [True, False])
def test_volume_of_metrics_is_protected_like_other_data(
    monkeypatch: pytest.MonkeyPatch, protect: bool
) -> None:
    found = record(monkeypatch, config(lambda values: values.update(protect_data=protect)))
    assert found.one("monitoring-data").protect is protect


def test_prometheus_scrapes_slurm_and_reconciler_metrics_through_services(
    default: Graph,
) -> None:
    services = {
        one.inputs["metadata"]["name"]: {
            port["port"] for port in one.inputs["spec"].get("ports", ())
        }
        for one in default.of_type("kubernetes:core/v1:Service")
    }
    for job in ("slurm", "reconciler"):
        (static,) = jobs(default)[job]["static_configs"]
        (target,) = static["targets"]
        host, _, port = target.partition(":")
        assert int(port) in services[host]


def test_prometheus_scrapes_long_checks_only_if_they_exist(
    monkeypatch: pytest.MonkeyPatch, default: Graph
) -> None:
    assert "longchecks" not in jobs(default)
    wanted = {"checks": [{"name": "cpu-memory"}]}
    found = record(monkeypatch, config(lambda values: values.update(long_checks=wanted)))
    assert jobs(found)["longchecks"]["static_configs"] == [{"targets": ["longchecks:9344"]}]


def test_node_metrics_have_a_label_with_the_kubernetes_node(default: Graph) -> None:
    node = jobs(default)["node"]
    (found,) = node["kubernetes_sd_configs"]
    assert found["namespaces"] == {"names": ["slurm"]}
    labels = templates(default)[MACHINES]["metadata"]["labels"]
    key, _, value = found["selectors"][0]["label"].partition("=")
    assert labels[key] == value
    assert {
        "source_labels": ["__meta_kubernetes_pod_node_name"],
        "target_label": "machine",
    } in node["relabel_configs"]


def test_dcgm_is_scraped_in_the_namespace_of_the_operator(
    monkeypatch: pytest.MonkeyPatch, default: Graph
) -> None:
    assert "dcgm" not in jobs(default)
    found = graph(monkeypatch, dcgm_namespace="gpu-operator")
    (discovery,) = jobs(found)["dcgm"]["kubernetes_sd_configs"]
    assert discovery["namespaces"] == {"names": ["gpu-operator"]}
    role, binding = found.one("monitoring-dcgm-role"), found.one("monitoring-dcgm-rights")
    assert role.inputs["metadata"] == {"name": "slurm-monitoring-dcgm", "namespace": "gpu-operator"}
    assert binding.inputs["subjects"] == found.one("monitoring-rights").inputs["subjects"]


@pytest.mark.parametrize(("read_every", "scraped_every"), [(5, "5s"), (60, "60s"), (600, "60s")])
def test_scrape_interval_equals_the_exporter_interval_up_to_a_minute(
    monkeypatch: pytest.MonkeyPatch, read_every: int, scraped_every: str
) -> None:
    """With such an interval, Prometheus gets every value that the exporter reads, and never treats
    a value as too old before the next scrape."""
    found = graph(monkeypatch, exporter={"interval": read_every})
    assert read(found, "prometheus.yml")["global"]["scrape_interval"] == scraped_every


def test_alerts_have_a_label_with_the_cluster_name(default: Graph) -> None:
    document = read(default, "prometheus.yml")
    assert document["global"]["external_labels"] == {"cluster": "test"}
    assert document["rule_files"] == ["/etc/slurmstack/monitoring/*.yaml"]


def test_changed_configuration_restarts_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    def checksum(**bundled: Any) -> str:
        annotations = templates(graph(monkeypatch, bundled=bundled))[SERVER]["metadata"]
        return str(annotations["annotations"][c.ANNOTATION_CHECKSUM])

    assert checksum() == checksum()
    assert checksum() != checksum(webhook="https://hooks.example.org/hpc")


def test_alerts_go_to_the_webhook(monkeypatch: pytest.MonkeyPatch, default: Graph) -> None:
    address = "https://hooks.example.org/hpc"
    (receiver,) = alertmanager(graph(monkeypatch, bundled={"webhook": address}))["receivers"]
    assert [one["url"] for one in receiver["webhook_configs"]] == [address]
    (default_receiver,) = alertmanager(default)["receivers"]
    assert set(default_receiver) == {"name"}


def test_alertmanager_configuration_of_the_site_is_only_in_its_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = graph(monkeypatch, bundled={"alertmanager_secret": "oncall"})
    volumes = {one["name"]: one for one in pod(found, SERVER)["volumes"]}
    assert volumes["alertmanager"]["secret"]["secretName"] == "oncall"
    assert not [one for one in found.resources if one.name == "monitoring-alertmanager"]
    (mount,) = [
        one for one in containers(found)["alertmanager"]["volumeMounts"]
        if one["name"] == "alertmanager"
    ]  # fmt: skip
    path = options(containers(found)["alertmanager"])["config.file"]
    assert path == f"{mount['mountPath']}/alertmanager.yml"


# --- node-exporter --------------------------------------------------------------------------------


def test_node_exporter_reads_its_machine_and_cannot_change_it(default: Graph) -> None:
    spec = pod(default, MACHINES)
    (container,) = spec["containers"]
    assert container["securityContext"]["runAsUser"] == c.NOBODY_ID
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert not spec.get("hostPID")
    assert not spec["automountServiceAccountToken"]
    assert spec["tolerations"] == [{"operator": "Exists"}], "tainted machines are also monitored"


# --- Grafana -------------------------------------------------------------------------------------


def test_grafana_runs_only_if_enabled(monkeypatch: pytest.MonkeyPatch, default: Graph) -> None:
    assert not [one for one in default.resources if one.name == GRAFANA]
    image = "registry.example.org/grafana:11"
    found = graph(monkeypatch, bundled={"grafana": {"enabled": True, "image": image}})
    (container,) = pod(found, GRAFANA)["containers"]
    assert container["image"] == image
    assert container["securityContext"]["runAsNonRoot"]


def test_grafana_password_is_only_in_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    found = graph(monkeypatch, bundled={"grafana": {"enabled": True}})
    secret = found.one("grafana-secret").inputs["stringData"]
    assert SECRET_SIGNATURE in str(secret)
    assert SECRET_SIGNATURE not in str(templates(found)[GRAFANA])


# --- An external Prometheus, or none --------------------------------------------------------------


def test_prometheus_operator_gets_monitors_for_all_sources_of_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = {"release": "prometheus"}
    found = graph(monkeypatch, kind="operator", operator={"labels": labels})

    types = {one.type.removeprefix("kubernetes:"): one for one in found.resources}
    assert "monitoring.coreos.com/v1:ServiceMonitor" in types
    ours = [one for one in found.resources if one.type.startswith(KINDS)]
    assert {one.inputs["metadata"]["labels"]["release"] for one in ours} == {"prometheus"}
    monitors = {
        one.inputs["metadata"]["name"]: one.inputs["spec"]
        for one in ours
        if one.type.endswith("Monitor")
    }
    assert set(monitors) == {"node", "reconciler", "slurm"}
    services = found.of_type("kubernetes:core/v1:Service")
    for job in ("reconciler", "slurm"):
        wanted = monitors[job]["selector"]["matchLabels"].items()
        (service,) = [
            one.inputs
            for one in services
            if wanted <= one.inputs["metadata"].get("labels", {}).items()
        ]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitors[job]["endpoints"]} <= ports
    assert not [one for one in found.resources if one.name == SERVER]
    assert found.one(MACHINES)


def test_prometheus_operator_sets_the_same_labels_as_bundled_prometheus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = graph(monkeypatch, kind="operator")
    node = found.one("monitoring-podmonitor-node").inputs["spec"]
    (endpoint,) = node["podMetricsEndpoints"]
    assert {"targetLabel": "job", "replacement": "node"} in endpoint["relabelings"]
    assert {
        "sourceLabels": ["__meta_kubernetes_pod_node_name"],
        "targetLabel": "machine",
    } in endpoint["relabelings"]
    slurm = found.one("monitoring-servicemonitor-slurm").inputs["spec"]
    (endpoint,) = slurm["endpoints"]
    assert {
        "targetLabel": "instance",
        "replacement": "exporter:9341",
    } in endpoint["relabelings"]


def test_prometheus_operator_gets_the_same_rules_and_dashboards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = graph(monkeypatch, kind="operator", operator={"dashboard_labels": {"show": "1"}})
    rules = {
        f"{one.name.rpartition('-')[2]}.yaml": one.inputs["spec"]
        for one in found.of_type("kubernetes:monitoring.coreos.com/v1:PrometheusRule")
    }
    assert rules == monitoringconf.rules(settings())
    shown = {
        one.inputs["metadata"]["name"]: one.inputs
        for one in found.resources
        if one.name.startswith("dashboard-")
    }
    assert set(shown) == {f"dashboard-{uid}" for uid in monitoringconf.dashboards()}
    assert shown
    assert all(one["metadata"]["labels"] == {"show": "1"} for one in shown.values())


def test_settings_may_disable_monitoring(monkeypatch: pytest.MonkeyPatch) -> None:
    found = graph(monkeypatch, kind="none")
    names = {one.name for one in found.resources}
    assert not {SERVER, MACHINES, GRAFANA} & names
    assert "exporter-agent" in names


def test_bundled_prometheus_reads_each_file_of_rules() -> None:
    values = settings()
    given = monitoringconf.files(values)
    rules = monitoringconf.rules(values)
    assert {yaml_ for yaml_ in given if yaml_.endswith(".yaml")} == set(rules)
    assert rules


def bridged(values: dict[str, Any]) -> None:
    values["nodesets"][0].pop("cpu_request", None)
    values["nodesets"][0]["shared_with_pods"] = True
    values["bridge"] = {"users": [{"namespace": "lab", "user": "researcher"}]}


def test_alerts_on_the_bridge_exist_only_with_a_bridge() -> None:
    """They fire if there are no metrics of the bridge."""
    with_bridge = settings(bridged)

    added = monitoringconf.files(with_bridge).keys() - monitoringconf.files(settings()).keys()

    assert added == {"bridge.yaml"}


def test_prometheus_scrapes_each_pod_of_the_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of them acts, and a Service would choose any of them."""
    found = record(monkeypatch, config(bridged))
    (discovery,) = jobs(found)["bridge"]["kubernetes_sd_configs"]
    labels = templates(found)["bridge-agent"]["metadata"]["labels"]
    key, _, value = discovery["selectors"][0]["label"].partition("=")
    assert labels[key] == value
    (agent,) = pod(found, "bridge-agent")["containers"]
    ports = {port["name"]: int(port["containerPort"]) for port in agent["ports"]}
    given = {one["name"]: one["value"] for one in agent["env"] if "value" in one}
    assert given["METRICS_PORT"] == str(ports["metrics"])
