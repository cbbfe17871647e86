"""A real Prometheus answers the dashboards' queries, and alerts reach their receiver."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from components.monitoring import monitoringconf
from components.settings import read_stack
from local.paths import ROOT
from monitoring.dashboards import Expression, expressions
from tests.cluster.health import faults
from tests.cluster.health.node import BROKEN, Node
from tests.cluster.health.watching import impatient, watched
from tests.support.cluster import Cluster
from tests.support.prometheus import HOOK_NAMESPACE, Watch
from tests.support.waiting import becomes, eventually

VARIABLES = {
    "$__rate_interval": "1m",
    "$__range": "10m",
    "$__interval": "30s",
    "$machine": ".+",
    "$state": ".+",
    "$node": "cpu-1",
}
"""Values of the variables in the dashboards' expressions, which Grafana would set. The variable
`$job_id` is missing here, because each test uses another job."""


@pytest.fixture(scope="module")
def watch(cluster: Cluster) -> Iterator[Watch]:
    """Prometheus with the usual alerts, but without their delays."""
    with watched(cluster, impatient) as prometheus:
        yield prometheus


# --- Queries -------------------------------------------------------------------------------------


def test_prometheus_scrapes_every_target(watch: Watch) -> None:
    wanted = {"alertmanager", "logs", "longchecks", "node", "prometheus", "reconciler", "slurm"}

    def all_up() -> bool:
        targets = watch.get("targets?state=active")["activeTargets"]
        up = [one["labels"]["job"] for one in targets if one["health"] == "up"]
        return set(up) == wanted and up.count("node") == 2 and len(up) == len(targets)

    eventually("all targets are up", all_up)
    machines = {one["metric"]["machine"] for one in watch.ask("node_uname_info")}
    assert machines == {"node-0", "node-1"}


def test_metrics_report_the_machine_of_a_node(watch: Watch, node: Node) -> None:
    """The node reports its machine only when slurmd starts, and slurmctld keeps the value."""

    def has_the_machine() -> bool:
        info = watch.ask(f'slurm_node_info{{node="{node.name}"}}')
        return [one["metric"]["machine"] for one in info] == [node.machine]

    eventually("the metric has the machine of the pod", has_the_machine)


@pytest.mark.soak
def test_healthy_cluster_has_no_alert(watch: Watch, node: Node) -> None:
    # These alerts fire for a while after the faults of other tests.
    before = {
        *("SlurmLongCheckBad", "SlurmNodeFlapping", "SlurmJobsFailingOnNode"),
        *("SlurmExporterStale", "AlertsNotDelivered"),
        # After large recent writes, such as images, the trend predicts a full disk within a day.
        "SlurmJailFullSoon",
    }
    lasting = watch.firing() - before

    def still_firing() -> set[str]:
        # Remove each alert that stops, even if only for a moment. `watch` has removed the delays of
        # the alerts. With its usual delay, an alert whose cause ends for a moment would not fire.
        nonlocal lasting
        lasting &= watch.firing()
        return lasting

    # Most alerts use data of the last 15 minutes. Wait until these data are newer than the faults
    # of other tests.
    becomes("the set of lasting alerts", still_firing, set(), 900)


def test_prometheus_loads_all_rules(watch: Watch) -> None:
    groups = watch.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    wanted = [
        rule
        for document in monitoringconf.rules(read_stack(watch.cluster.stack, ROOT)).values()
        for group in document["groups"]
        for rule in group["rules"]
    ]
    assert {rule["name"] for rule in rules} == {
        rule.get("alert") or rule["record"] for rule in wanted
    }
    eventually(
        "all rules evaluate without an error",
        lambda: all(
            rule["health"] == "ok"
            for group in watch.get("rules")["groups"]
            for rule in group["rules"]
        ),
    )


NO_GPUS = {
    "slurmstack-job": {"GPUs", "Peak GPU memory", "GPUs, by node", "GPU memory, by node"},
    "slurmstack-jobs": {"GPUs in use"},
    "slurmstack-node": {"GPUs", "GPUs allocated", "GPU temperature"},
    "slurmstack-nodes": {"GPUs in use"},
}
"""Panels, by dashboard, that are empty because the test cluster has no GPUs. All panels of the
dashboards of GPUs and of pods may be empty too: the cluster has neither GPUs nor a bridge."""
NOTHING_WRONG = {
    "slurmstack-checks": {"Findings", "Nodes with findings"},
    "slurmstack-health": {
        *("Mean time between failures", "Drained, by cause", "Nodes out of service"),
        *("Drained nodes", "Findings", "Nodes repaired most often", "Repair ladder"),
    },
    "slurmstack-job": {"InfiniBand received, by node"},
    "slurmstack-jobs": {
        *("Longest wait", "Recently failed", "Why jobs wait", "Wait so far, by partition"),
        "Licenses",
    },
    "slurmstack-node": {"Drained for", "Findings"},
    "slurmstack-nodes": {"Failed jobs, by node", "Reservations"},
    "slurmstack-storage": {"Jail full in"},
}
"""Panels that are empty on a healthy cluster."""
LONG_CHECKS = {
    "slurmstack-checks": {
        *("Bad measurements", "Measured within a week", "Last measurement", "Long checks"),
        *("NCCL, on a node", "NCCL, between two nodes", "GPU and host memory", "CPU memory"),
        *("GPU faults", "Network, between two nodes"),
    },
    "slurmstack-node": {"Long checks"},
}
"""Panels of long checks. Most of these checks need a device that the cluster lacks; others have not
run yet."""


LATE = {"Licenses", "Mean time between failures", "Nodes repaired most often"}
"""Panels of NOTHING_WRONG that stay empty although the test breaks a node: they need a setting, or
more time than the test takes."""


def may_be_empty(dashboard: str, panel: str) -> bool:
    tables = (NO_GPUS, NOTHING_WRONG, LONG_CHECKS)
    return dashboard in ("slurmstack-gpus", "slurmstack-pods") or any(
        panel in table.get(dashboard, ()) for table in tables
    )


def unanswered(ask: Callable[[str], list[dict[str, Any]]], job: int) -> set[tuple[str, str]]:
    """Return dashboard and title of each panel that has no data for any of its expressions."""

    def asked(expression: Expression) -> list[dict[str, Any]]:
        text = expression.expr
        for name, value in sorted({**VARIABLES, "$job_id": str(job)}.items(), reverse=True):
            text = text.replace(name, value)
        assert "$" not in text, text
        return ask(text)

    answered: dict[tuple[str, str], bool] = {}
    for expression in expressions():
        panel = (expression.dashboard, expression.panel)
        answered[panel] = answered.get(panel, False) or bool(asked(expression))
    return {panel for panel, data in answered.items() if not data}


def test_every_panel_has_data(watch: Watch, cluster: Cluster, folder: str) -> None:
    job = cluster.submit(folder, "#!/bin/sh\nsleep 600", "--nodes=2 --ntasks-per-node=1")
    cluster.wait_for_job(job, "RUNNING")
    query = f'slurm_job_node{{job_id="{job}"}}'
    eventually("the metrics have the nodes of the job", lambda: len(watch.ask(query)) == 2)

    def missing(ask: Callable[[str], list[dict[str, Any]]]) -> set[tuple[str, str]]:
        return {one for one in unanswered(ask, job) if not may_be_empty(*one)}

    def of_the_job() -> set[tuple[str, str]]:
        return {panel for panel in missing(watch.ask_lately) if panel[0] == "slurmstack-job"}

    try:
        # Wait, because some panels need data of several minutes.
        becomes("the set of panels without data", lambda: missing(watch.ask), set(), 120)
        # Wait until each graph shows the job: a graph has a point only every half minute.
        becomes("the set of graphs without the job", of_the_job, set())
        # Let the job run for 30 s more, so that every graph has a point during the job.
        time.sleep(30)
    finally:
        cluster.run(f"scancel {job}")
    eventually("the job is gone from the metrics", lambda: not watch.ask(query))
    assert of_the_job() == set()


def test_dashboards_show_faults(watch: Watch, node: Node, folder: str) -> None:
    """Break a node, and create a failed job, a pending job and a reservation."""
    cluster, reserved = node.cluster, "reservationname=later"
    when = ("starttime=now+2hours", "duration=60", "nodes=cpu-0", "users=researcher")
    failed = cluster.submit(folder, "#!/bin/sh\nexit 3")
    # Wait until the job has run before the reservation is created: a job without a time limit
    # cannot start on nodes that are reserved later.
    cluster.wait_for_job(failed, "FAILED")
    cluster.operate("scontrol", "create", reserved, *when)
    node.prints(BROKEN)
    node.is_drained_for("check:gpu-ecc", 120)
    waiting = cluster.submit(folder, "#!/bin/sh\ntrue", "--nodes=2")
    wrong = {
        (dashboard, panel)
        for dashboard, panels in NOTHING_WRONG.items()
        for panel in panels - LATE
        if dashboard not in ("slurmstack-job", "slurmstack-storage")
    }
    try:
        becomes(
            "the set of panels without data",
            lambda: wrong & unanswered(watch.ask, failed),
            set(),
            120,
        )
    finally:
        cluster.run(f"scancel {waiting}")
        cluster.operate("scontrol", "delete", reserved)


def test_labels_contain_no_secrets(watch: Watch) -> None:
    values = {value for one in watch.ask('{job=~".+"}') for value in one["metric"].values()}
    assert values
    assert not [value for value in values if re.search(r"\w@\w+\.\w", value)]
    assert not [value for value in values if re.search(r"eyJ[A-Za-z0-9_-]{20}", value)]


# --- Alerts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", faults.QUICK)
def test_fault_fires_its_alerts(watch: Watch, node: Node, fault: str) -> None:
    broken, alerts = faults.QUICK[fault]
    watch.check_alerts_of(broken(watch.cluster), alerts, 300)


def test_receiver_gets_the_end_of_an_alert(watch: Watch) -> None:
    eventually(
        "the receiver gets the end of SlurmExporterDown",
        lambda: watch.has_received("SlurmExporterDown", "resolved"),
        120,
    )


def test_missing_alert_receiver_fires_an_alert(watch: Watch) -> None:
    there = f"--namespace={HOOK_NAMESPACE}"
    becomes(
        "whether AlertsNotDelivered fires",
        lambda: "AlertsNotDelivered" in watch.firing(),
        False,
        900,
    )
    service = watch.cluster.kubectl("get", there, "service", "receiver", "-o", "json")
    watch.cluster.kubectl("delete", there, "service", "receiver")
    try:
        with faults.drained_by_hand(watch.cluster):
            eventually(
                "AlertsNotDelivered fires", lambda: "AlertsNotDelivered" in watch.firing(), 240
            )
    finally:
        kept = json.loads(service)
        kept["metadata"] = {"name": "receiver", "namespace": HOOK_NAMESPACE}
        kept["spec"].pop("clusterIP"), kept["spec"].pop("clusterIPs")
        watch.cluster.kubectl("apply", there, "--filename=-", stdin=json.dumps(kept))


def test_alerts_link_to_runbooks(watch: Watch) -> None:
    for one in watch.received():
        assert one["annotations"]["runbook"].startswith("docs/runbooks/")
        assert "{{" not in yaml.safe_dump(one["annotations"])
