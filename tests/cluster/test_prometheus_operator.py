"""A real Prometheus Operator accepts the objects that `kind: operator` creates."""

import base64
import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from components import conventions as c
from components.monitoring import monitoringconf
from local import binaries
from tests.support.cluster import Cluster
from tests.support.graph import record
from tests.support.prometheus import Watch
from tests.support.stack import config
from tests.support.waiting import becomes, eventually

pytestmark = pytest.mark.soak

FOLDER = Path(__file__).parent / "prometheus_operator"
MODULE = "github.com/prometheus-operator/prometheus-operator"
OPERATOR = binaries.Build("prometheus-operator", str(FOLDER), f"{MODULE}/cmd/operator")
THEIRS = "observability"
"""Namespace of the operator's Prometheus, and name of all objects in it."""
KINDS = ("PodMonitor", "PrometheusRule", "ServiceMonitor")
SELECTED = {"release": "theirs"}
IN_THEIRS = f"--namespace={THEIRS}"
RULES = f"/etc/prometheus/rules/prometheus-{THEIRS}-rulefiles-0"
CONFIG = "prometheus.conf"
"""File name of the configuration; the names of all rule files end in `.yaml`."""

Ask = Callable[[str], Any]


def metadata(name: str = THEIRS, namespace: str = THEIRS) -> dict[str, str]:
    return {"name": name, "namespace": namespace}


def listed(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


PROMETHEUS = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "Prometheus",
    "metadata": metadata(),
    "spec": {
        # Let the operator create no pods, because these would need the operator's images. The
        # fixture `theirs` creates a pod that uses the operator's files.
        "replicas": 0,
        "version": "v2.42.0",
        **{f"{kind}Selector": {"matchLabels": SELECTED} for kind in ("podMonitor", "rule")},
        **{f"{kind}NamespaceSelector": {} for kind in ("podMonitor", "rule", "serviceMonitor")},
        "serviceMonitorSelector": {"matchLabels": SELECTED},
    },
}
RIGHTS = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(namespace="slurm"),
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["endpoints", "pods", "services"],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["get", "list", "watch"],
            },
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(namespace="slurm"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": THEIRS},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": THEIRS}],
    },
]


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    """Return the objects that the stack creates for an operator."""
    wanted = {
        "kind": "operator",
        "operator": {"labels": SELECTED, "dashboard_labels": {"grafana_dashboard": "1"}},
        "scrape_from": [THEIRS],
    }
    with pytest.MonkeyPatch.context() as monkeypatch:
        graph = record(monkeypatch, config(lambda values: values.update(monitoring=wanted)))
    return [
        one.inputs
        for one in graph.resources
        if one.inputs.get("kind") in KINDS or one.name.startswith("dashboard-")
    ]


@pytest.fixture(scope="module")
def given(cluster: Cluster, objects: list[dict[str, Any]]) -> Iterator[None]:
    """Install the operator's kinds, the stack's objects, and a Prometheus that selects them."""
    fetch = ["go", "mod", "download", "-json", MODULE]
    module = subprocess.run(fetch, cwd=FOLDER, check=True, capture_output=True, text=True)
    definitions = str(Path(json.loads(module.stdout)["Dir"], "example/prometheus-operator-crd"))
    theirs = [one for one in objects if one["kind"] in KINDS]
    others = listed(*(one for one in objects if one["kind"] not in KINDS), *RIGHTS)
    served = ("api-resources", "--api-group=monitoring.coreos.com", "--cached=0")
    cluster.kubectl("create", "namespace", THEIRS)
    try:
        cluster.kubectl("apply", "--server-side", "--filename", definitions)
        eventually(
            "the API server serves the kinds",
            lambda: all(kind in cluster.kubectl(*served) for kind in (*KINDS, "Prometheus")),
        )
        # Use strict validation, which refuses fields that the definitions do not have.
        cluster.kubectl("apply", "--validate=strict", "--filename=-", stdin=listed(*theirs))
        cluster.kubectl("apply", "--filename=-", stdin=others)
        cluster.kubectl("apply", IN_THEIRS, "--filename=-", stdin=listed(PROMETHEUS))
        yield
    finally:
        gone = ("delete", "--ignore-not-found", "--filename")
        cluster.kubectl(*gone, "-", stdin=others)
        # Delete the definitions. Kubernetes then also deletes all objects of these kinds.
        cluster.kubectl(*gone, definitions)
        cluster.kubectl("delete", "namespace", THEIRS, timeout=180)


@pytest.fixture(scope="module")
def operator_files(
    cluster: Cluster, given: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Return the files that the operator writes for its Prometheus, by name."""
    document = json.loads(cluster.kubectl("config", "view", "--raw", "--output=json"))
    server, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    folder = tmp_path_factory.mktemp("operator")
    credentials = {
        "ca": server["certificate-authority-data"],
        "cert": user["client-certificate-data"],
        "key": user["client-key-data"],
    }
    for name, content in credentials.items():
        (folder / name).write_bytes(base64.b64decode(content))
    command = [
        str(binaries.ensure_further(OPERATOR, print)),
        f"--apiserver={server['server']}",
        *(f"--{name}-file={folder / name}" for name in credentials),
        "--web.listen-address=127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield eventually("the operator has written all files", lambda: written(cluster), 120)
        finally:
            process.terminate()


def written(cluster: Cluster) -> dict[str, str]:
    """Return Prometheus' configuration and rule files; empty until both exist."""
    name = f"prometheus-{THEIRS}"
    there = json.loads(cluster.kubectl("get", "secrets,configmaps", IN_THEIRS, "-o", "json"))
    found = {one["metadata"]["name"]: one.get("data", {}) for one in there["items"]}
    packed = found.get(name, {}).get("prometheus.yaml.gz", "")
    rules = found.get(f"{name}-rulefiles-0", {})
    if not packed or not rules:
        return {}
    return {CONFIG: gzip.decompress(base64.b64decode(packed)).decode(), **rules}


@pytest.fixture(scope="module")
def theirs(cluster: Cluster, operator_files: dict[str, str]) -> Ask:
    """Run a Prometheus with the operator's files, outside the stack's namespace."""
    made = json.loads(cluster.kubectl("get", "statefulset", c.MONITORING, "-o", "json"))
    (ours,) = [
        one for one in made["spec"]["template"]["spec"]["containers"] if one["name"] == "prometheus"
    ]
    # Replace $(SHARD) by 0, as the operator's config-reloader does for a Prometheus without shards.
    files = {
        name: text.replace(RULES, "/told").replace("$(SHARD)", "0")
        for name, text in operator_files.items()
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(),
        "spec": {
            "containers": [
                {
                    "name": "prometheus",
                    "image": ours["image"],
                    "imagePullPolicy": "IfNotPresent",
                    "readinessProbe": {"httpGet": {"path": "/-/ready", "port": 9090}},
                    "command": [
                        *("prometheus", f"--config.file=/told/{CONFIG}"),
                        "--storage.tsdb.path=/data",
                    ],
                    "volumeMounts": [
                        {"name": "told", "mountPath": "/told"},
                        {"name": "data", "mountPath": "/data"},
                    ],
                }
            ],
            "securityContext": {"runAsUser": c.MONITORING_ID, "fsGroup": c.MONITORING_ID},
            "volumes": [
                {"name": "told", "configMap": {"name": THEIRS}},
                {"name": "data", "emptyDir": {}},
            ],
        },
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(), "data": files}
    cluster.kubectl("apply", IN_THEIRS, "--filename=-", stdin=listed(config_map, pod))
    cluster.kubectl("wait", IN_THEIRS, "--for=condition=Ready", f"pod/{THEIRS}", "--timeout=60s")
    api = f"/api/v1/namespaces/{THEIRS}/pods/{THEIRS}:9090/proxy/api/v1"

    def get(path: str) -> Any:
        return json.loads(cluster.kubectl("get", "--raw", f"{api}/{path}"))["data"]

    return get


@pytest.fixture
def watch(cluster: Cluster) -> Watch:
    return Watch(cluster)


def labels(answer: dict[str, Any]) -> set[tuple[tuple[str, str], ...]]:
    """Return the labels of each series."""
    return {tuple(sorted(one["metric"].items())) for one in answer["result"]}


def test_prometheus_of_the_operator_scrapes_the_stacks_series(watch: Watch, theirs: Ask) -> None:
    for expression in (
        'count by (job) (up{job=~"slurm|reconciler|node"} == 1)',
        "slurm_up",
        "slurm_nodes",
        "slurmstack_nodes_in_service",
        "sum by (job, machine) (node_memory_MemTotal_bytes)",
    ):
        query = f"query?query={quote(expression)}"
        ours = labels(watch.get(query))
        assert ours, expression
        becomes(expression, partial(lambda each: labels(theirs(each)), query), ours, 120)


def test_prometheus_of_the_operator_loads_the_stacks_rules(watch: Watch, theirs: Ask) -> None:
    def rules(ask: Ask) -> set[tuple[str, str]]:
        found = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        return {(rule["name"], rule["query"]) for rule in found}

    assert rules(theirs) == rules(watch.get)
    assert len({name for name, _ in rules(theirs)}) > 32
    recorded = f"query?query={quote('cluster:slurm_exporter_read_up:max == 1')}"
    eventually("a rule has recorded a series", lambda: theirs(recorded)["result"], 120)


@pytest.mark.usefixtures("given")
def test_dashboards_have_the_label_that_grafana_selects(cluster: Cluster) -> None:
    listed = cluster.kubectl("get", "configmaps", "--selector=grafana_dashboard=1", "-o", "json")
    found = [
        json.loads(text) for one in json.loads(listed)["items"] for text in one["data"].values()
    ]

    assert {one["uid"] for one in found} == monitoringconf.dashboards().keys()
