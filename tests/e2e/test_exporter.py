"""What happens in the cluster is in the metrics within an interval, for who may scrape."""

from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from components import conventions as c
from images import tags
from tests.e2e.cluster import Cluster, eventually

MONITORING = "monitoring"
URL = f"http://{c.EXPORTER}.slurm.svc.{c.CLUSTER_DOMAIN}:{c.EXPORTER_PORT}/metrics"
SCRAPE = f"import urllib.request as u; print(u.urlopen('{URL}', timeout=10).read().decode())"
Series = dict[str, float]
Scrape = Callable[[], Series]


@pytest.fixture(scope="module")
def scrape(cluster: Cluster) -> Iterator[Scrape]:
    """What a Prometheus in a namespace that may scrape is told."""
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
            return {
                f"{sample.name} {' '.join(sample.labels.values())}".strip(): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }

        yield scraped
    finally:
        cluster.kubectl("delete", "namespace", MONITORING, "--wait=false")


def test_jobs_that_run_and_wait_are_in_the_metrics(
    cluster: Cluster, folder: str, scrape: Scrape
) -> None:
    eventually("nobody has jobs", lambda: scrape().get("slurm_jobs running") == 0)
    cluster.submit(folder, "#!/bin/sh\nsleep 600", "--nodes=2 --exclusive")
    cluster.submit(folder, "#!/bin/sh\nsleep 600", "--nodes=2 --exclusive --array=1-3")

    def seen() -> bool:
        series = scrape()
        return series["slurm_jobs running"] == 1 and series["slurm_jobs pending"] == 3

    eventually("one runs and three wait", seen)
    series = scrape()
    assert series["slurm_up"] == 1
    assert series["slurm_user_jobs researcher running"] == 1
    assert series["slurm_node_state cpu-0 allocated"] == 1
    assert series["slurm_partition_cpus_allocated main"] == 4
    cluster.run("scancel --user=researcher")
    eventually("they are gone", lambda: scrape()["slurm_jobs pending"] == 0)


def test_a_node_that_an_operator_drains_is_in_the_metrics(cluster: Cluster, scrape: Scrape) -> None:
    update = ("scontrol", "update", "nodename=cpu-1")
    controller = cluster.controller()
    cluster.in_pod(controller, "slurmctld", *update, "state=drain", 'reason=new "disk", 名前')
    try:
        eventually("it is out", lambda: scrape().get("slurm_node_state cpu-1 drained") == 1)
        series = scrape()
        assert series["slurm_nodes_drained foreign"] == 1
        assert 0 <= series["slurm_node_drained_seconds cpu-1 foreign"] < 120
    finally:
        cluster.in_pod(controller, "slurmctld", *update, "state=resume")
    eventually("it is back", lambda: scrape()["slurm_nodes_drained foreign"] == 0)


def test_users_read_no_metrics(cluster: Cluster, scrape: Scrape) -> None:
    assert scrape()["slurm_up"] == 1, "it is there"
    (pod,) = cluster.pods(c.EXPORTER)
    for host in (c.EXPORTER, pod["status"]["podIP"]):
        for way in ("", "srun "):
            ask = f"{way}bash -c ': </dev/tcp/{host}/{c.EXPORTER_PORT}'"
            refused = cluster.ssh(ask, check=False)
            assert "Connection refused" in refused.stderr, (host, way)


def test_the_exporter_holds_no_key_and_no_capability(cluster: Cluster) -> None:
    status = cluster.in_pod("deploy/exporter", "exporter", "cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000" in status
    assert f"Uid:\t{c.EXPORTER_ID}" in status
    reach = "cat /etc/auth-secret/* /run/munged/* /etc/slurmstack/jwt/*"
    keys = cluster.in_pod("deploy/exporter", "exporter", "sh", "-c", f"{reach} 2>/dev/null || true")
    assert keys == ""
