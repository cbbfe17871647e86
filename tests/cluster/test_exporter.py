"""Metrics show an event at most one interval later. Only authorized scrapers can read metrics."""

from collections.abc import Callable, Iterator

import pytest

from components import conventions as c
from images import tags
from tests.support.cluster import Cluster
from tests.support.metrics import Series, series
from tests.support.waiting import eventually

MONITORING = "monitoring"
URL = f"http://{c.EXPORTER}.slurm.svc.{c.CLUSTER_DOMAIN}:{c.EXPORTER_PORT}/metrics"
SCRAPE = f"import urllib.request as u; print(u.urlopen('{URL}', timeout=10).read().decode())"
RUNNING, PENDING = 'slurm_jobs{state="running"}', 'slurm_jobs{state="pending"}'
FOREIGN = 'slurm_nodes_drained{cause="foreign"}'
Scrape = Callable[[], Series]


@pytest.fixture(scope="module")
def scrape(cluster: Cluster) -> Iterator[Scrape]:
    """Scrape the exporter like a Prometheus in an authorized namespace."""
    there = f"--namespace={MONITORING}"
    cluster.kubectl("create", "namespace", MONITORING)
    try:
        cluster.kubectl(
            *("run", "prometheus", there, f"--image={tags.reference('agents')}"),
            *("--image-pull-policy=IfNotPresent", "--command", "--", "sleep", "infinity"),
        )
        cluster.kubectl("wait", there, "--for=condition=Ready", "pod/prometheus", "--timeout=60s")

        def scraped() -> Series:
            text = cluster.kubectl("exec", there, "prometheus", "--", "python3", "-c", SCRAPE)
            return series(text.encode())

        yield scraped
    finally:
        cluster.kubectl("delete", "namespace", MONITORING, "--wait=false")


def test_metrics_report_running_and_pending_jobs(
    cluster: Cluster, folder: str, scrape: Scrape
) -> None:
    eventually("no job runs", lambda: scrape().get(RUNNING) == 0)
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--nodes=2 --exclusive")
    cluster.submit(folder, "#!/bin/sh\nsleep 600", "--nodes=2 --exclusive --array=1-3")

    def reported() -> bool:
        metrics = scrape()
        return metrics.get(RUNNING) == 1 and metrics.get(PENDING) == 3

    eventually("the metrics report one running and three pending jobs", reported)
    metrics = scrape()
    assert metrics["slurm_up"] == 1
    assert metrics['slurm_user_jobs{state="running",user="researcher"}'] == 1
    assert metrics['slurm_node_state{node="cpu-0",state="allocated"}'] == 1
    assert metrics['slurm_partition_cpus_allocated{partition="main"}'] == 4
    assert len([name for name in metrics if f'job_id="{job}"' in name]) == 2
    cluster.run("scancel --user=researcher")
    eventually("the metrics report no pending job", lambda: scrape().get(PENDING) == 0)


def test_metrics_report_the_machine_of_each_node(cluster: Cluster, scrape: Scrape) -> None:
    machines = {
        pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in cluster.pods(c.WORKER)
    }
    metrics = scrape()
    for node in ("cpu-0", "cpu-1"):
        assert metrics[f'slurm_node_info{{machine="{machines[node]}",node="{node}"}}'] == 1


def test_exporter_reports_the_size_of_the_jail(cluster: Cluster, scrape: Scrape) -> None:
    blocks, size = cluster.run("stat --file-system --format='%b %S' /").split()
    assert scrape()['slurmstack_jail_size_bytes{volume="jail"}'] == int(blocks) * int(size)


def test_metrics_report_a_node_that_an_operator_drains(cluster: Cluster, scrape: Scrape) -> None:
    update = ("scontrol", "update", "nodename=cpu-1")
    controller = cluster.controller()
    cluster.in_pod(controller, "slurmctld", *update, "state=drain", 'reason=new "disk", 名前')
    try:
        eventually(
            "cpu-1 is drained",
            lambda: scrape().get('slurm_node_state{node="cpu-1",state="drained"}') == 1,
        )
        metrics = scrape()
        assert metrics[FOREIGN] == 1
        assert 0 <= metrics['slurm_node_drained_seconds{cause="foreign",node="cpu-1"}'] < 120
    finally:
        cluster.in_pod(controller, "slurmctld", *update, "state=resume")
    eventually("cpu-1 is back", lambda: scrape().get(FOREIGN) == 0)


def test_users_cannot_read_metrics(cluster: Cluster, scrape: Scrape) -> None:
    eventually("the exporter answers authorized scrapers", lambda: scrape().get("slurm_up") == 1)
    (pod,) = cluster.pods(c.EXPORTER)
    for host in (c.EXPORTER, pod["status"]["podIP"]):
        for way in ("", "srun "):
            ask = f"{way}bash -c ': </dev/tcp/{host}/{c.EXPORTER_PORT}'"
            refused = cluster.ssh(ask, check=False)
            assert "Connection refused" in refused.stderr, (host, way)


def test_exporter_has_no_keys_and_no_capabilities(cluster: Cluster) -> None:
    status = cluster.in_pod("deploy/exporter", "exporter", "cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000" in status
    assert f"Uid:\t{c.EXPORTER_ID}" in status
    reach = "cat /etc/auth-secret/* /run/munged/* /etc/slurmstack/jwt/*"
    keys = cluster.in_pod("deploy/exporter", "exporter", "sh", "-c", f"{reach} 2>/dev/null || true")
    assert keys == ""
