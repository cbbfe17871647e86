"""A stack with Slurm's own keys instead of munge, one controller, and Prometheus Operator.

The stack does not install the operator.
"""

import datetime
import time
from collections.abc import Iterator
from typing import Any

import pytest

from components import conventions as c
from components.monitoring import monitoringconf
from components.settings import read_stack
from local.paths import ROOT
from tests.cluster.two_stacks.choices import FOUND_BY, SecondOn
from tests.support.cluster import Cluster
from tests.support.waiting import eventually

KEYS = "cat /etc/auth-secret/* /run/slurm-keys/*"


@pytest.fixture(scope="module")
def second(second_on: SecondOn) -> Cluster:
    return second_on(2)


@pytest.fixture
def folder_of_second(second: Cluster) -> Iterator[str]:
    second.wait_for_login(300)
    yield second.run("mktemp -d ~/test-XXXXXX")
    second.wait_for_login(300)
    second.run("scancel --user=researcher")
    # Wait, because a node whose machine was frozen is out of service until the node's next checks
    # have passed.
    second.wait_for_nodes("cpu-0", "cpu-1", timeout=300)


def test_jobs_run_without_munged(second: Cluster) -> None:
    second.wait_for_nodes("cpu-0", "cpu-1")
    assert second.run("srun --nodes=2 id -un").split() == ["researcher", "researcher"]
    # Slurm's keys also authenticate commands within a job.
    assert second.run("srun --overlap squeue --noheader --format=%u") == "researcher"
    assert "munge" not in second.kubectl("get", "pods", "-o", "jsonpath={..name}")


def test_root_cannot_run_a_job(second: Cluster) -> None:
    output = second.as_user(0, 0, "srun --immediate=20 id 2>&1 || true")

    assert "Unable to allocate resources: Invalid user id" in output


def test_exporter_reads_slurm_without_munge(second: Cluster) -> None:
    second.wait_for_nodes("cpu-0", "cpu-1")
    once = ("python3", "-m", "agents.exporter", "--once")
    output = second.in_pod("deploy/exporter", "exporter", *once)
    assert "\nslurm_up 1.0\n" in output
    assert '\nslurm_nodes{state="idle"} 2.0\n' in output


def test_each_service_monitor_selects_a_service_with_metrics(second: Cluster) -> None:
    monitors = second.objects("servicemonitors")
    assert {monitor["metadata"]["name"] for monitor in monitors} == {"slurm", "reconciler"}
    for monitor in monitors:
        (service,) = second.objects("services", selector(monitor))
        ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        (endpoint,) = monitor["spec"]["endpoints"]
        url = f"http://{service['metadata']['name']}:{ports[endpoint['port']]}/metrics"
        fetch = f"import urllib.request as r; print(r.urlopen('{url}', timeout=10).status)"
        exporter = ("deploy/exporter", "exporter")
        assert second.in_pod(*exporter, "python3", "-c", fetch).strip() == "200"


def test_pod_monitor_selects_a_pod_on_each_machine(second: Cluster) -> None:
    (monitor,) = second.objects("podmonitors")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    pods = second.objects("pods", selector(monitor))
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-0", "node-1"}
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}


def test_operator_and_grafana_find_all_rules_and_dashboards(second: Cluster) -> None:
    labels = ",".join(f"{key}={value}" for key, value in FOUND_BY.items())
    rules = second.objects("prometheusrules", labels)
    assert [rule["spec"] for rule in rules] == list(
        monitoringconf.rules(read_stack(second.stack, ROOT)).values()
    )
    assert len(second.objects("servicemonitors", labels)) == 2
    assert len(second.objects("podmonitors", labels)) == 1
    dashboards = second.objects("configmaps", "grafana_dashboard=1")
    assert len(dashboards) == len(monitoringconf.dashboards())


def test_stack_does_not_run_its_own_prometheus(second: Cluster) -> None:
    assert second.pods("monitoring") == []


def selector(monitor: dict[str, Any]) -> str:
    """Return the label selector of a monitor in kubectl's form."""
    labels = monitor["spec"]["selector"]["matchLabels"]
    return ",".join(f"{key}={value}" for key, value in labels.items())


def test_users_cannot_read_keys_or_replace_the_socket(second: Cluster) -> None:
    for way in ("", "srun "):
        reached = second.ssh(f"{way}sh -c '{KEYS}'", check=False)
        assert reached.stdout == ""
        replaced = second.ssh(f"{way}sh -c 'rm -f /run/slurm/sack.socket'", check=False)
        assert replaced.returncode != 0
    assert second.run("srun hostname")


def test_controller_of_a_lost_node_restarts_on_the_placeholders_node(
    second: Cluster, folder_of_second: str
) -> None:
    # The test freezes the controller's node. Move the controller away from node-0 first, because
    # node-0 also runs the Kubernetes API.
    second.move_controller("node-1")
    lost = second.controller()
    eventually("a placeholder runs on node-0", lambda: placeholder_nodes(second) == ["node-0"])
    spared = f"--nodelist={second.node_on('node-0')}"
    running = second.submit(folder_of_second, "#!/bin/sh\nsleep 600", spared)
    second.submit(folder_of_second, "#!/bin/sh\ntrue", "--hold")
    second.wait_for_job(running, "RUNNING")
    before = second.settled_queue(lost)
    # Wait until slurmctld has saved its state, at most five seconds after a change.
    time.sleep(6)

    with second.frozen("node-1"):
        # The time limit is long: if slurmdbd is also lost, slurmctld first waits for slurmdbd.
        eventually("the controller on node-0 is active", lambda: second.serves_on("node-0"), 240)
        assert second.queue(second.controller()) == before

    eventually(
        "only the controller on node-0 is left",
        lambda: len(second.controllers()) == 1 and second.serves_on("node-0"),
        120,
    )
    eventually("a placeholder runs on node-1", lambda: placeholder_nodes(second) == ["node-1"])
    # Wait for the login node, which may have been on the lost machine.
    second.wait_for_login(120)
    assert second.job_state(running) == "RUNNING"


def placeholder_nodes(stack: Cluster) -> list[str]:
    """Return the Kubernetes nodes with a placeholder, a pod that reserves a place for slurmctld."""
    return [
        pod["spec"].get("nodeName", "")
        for pod in stack.pods("placeholder")
        if pod["status"]["phase"] == "Running"
    ]


def in_force(stack: Cluster) -> dict[str, Any]:
    """Return the data of ConfigMaps and the specifications of workloads in use."""
    excluded = {c.SLURM_CONFIG_CANDIDATE, c.MEMORY_CONFIG}
    found = {one["metadata"]["name"]: one.get("data") for one in stack.objects("configmaps")}
    for kind in ("deployments", "statefulsets"):
        found |= {one["metadata"]["name"]: one["spec"] for one in stack.objects(kind)}
    return {name: data for name, data in found.items() if name not in excluded}


def test_auth_type_cannot_change(second: Cluster) -> None:
    before = in_force(second)
    with second.edited(lambda values: values.update(auth={"type": "munge"})):
        refused = second.deploy("up", check=False)
    assert refused.returncode != 0
    assert "auth.type" in refused.stderr + refused.stdout
    assert in_force(second) == before
    assert second.run("srun hostname")


def test_key_rotation_loses_no_job(second: Cluster, folder_of_second: str) -> None:
    moment = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=90)).replace(
        microsecond=0
    )
    running = second.submit(folder_of_second, "#!/bin/sh\nsleep 600", "--nodelist=cpu-0")
    held = second.submit(folder_of_second, "#!/bin/sh\ntrue", "--hold")
    second.wait_for_job(running, "RUNNING")

    def rotate(values: dict[str, Any]) -> None:
        values["auth"].setdefault("rotations", []).append(moment.isoformat())

    # Do not restore the settings after the test: pods still use the key of this rotation.
    second.edit(rotate)
    second.deploy("up")
    since = int(moment.timestamp())
    signs = f"signing with key {since}"
    for pod in ("cpu-0", "cpu-1", "login-0", second.controller()):
        eventually(
            f"{pod} signs with the new key",
            lambda: signs in second.kubectl("logs", pod, "-c", "sackd"),  # noqa: B023  # called at once
            150,
        )
    reload = ("logs", second.controller(), "-c", "reload")
    eventually(
        "slurmctld has read its configuration twice",
        lambda: second.kubectl(*reload).count("has read its configuration again") >= 2,
    )
    assert second.run("srun --nodes=2 --overcommit hostname").split()
    states = [second.job_state(job) for job in (running, held)]
    assert states == ["RUNNING", "PENDING"]
    assert "Restarts=0" in second.run(f"scontrol show job {running}")
