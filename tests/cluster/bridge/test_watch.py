"""Prometheus shows the pods that Slurm schedules, and faults of the bridge fulfil its alerts."""

import re
from typing import Any

import pytest
import yaml

from local.paths import ROOT
from monitoring.dashboards import expressions
from tests.cluster.bridge.faults import FAULTS
from tests.cluster.bridge.lab import Lab
from tests.support.cluster import Cluster
from tests.support.prometheus import Watch
from tests.support.waiting import becomes, eventually

RULES = yaml.safe_load((ROOT / "monitoring" / "alerts" / "bridge.yaml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
EMPTY = {"Time to bind", "Actions", "Failed plans and actions"}
"""Panels that are empty while the bridge does nothing."""


@pytest.fixture(scope="module")
def watch(cluster: Cluster) -> Watch:
    return Watch(cluster)


def test_panels_show_the_pods(lab: Lab, watch: Watch) -> None:
    refused = {"slurmjob.slinky.slurm.net/acount": "x"}
    lab.create(lab.manifest("train"), lab.manifest("wrong", annotations=refused))
    lab.wait_for("train")
    shown = [one for one in expressions() if one.dashboard == "slurmstack-pods"]

    def unanswered() -> set[str]:
        texts = {one.panel: one.expr.replace("$__rate_interval", "1m") for one in shown}
        return {panel for panel, text in texts.items() if not watch.ask(text)}

    becomes("the panels without data", lambda: unanswered() - EMPTY, set())

    def numbers() -> dict[str, float]:
        found = watch.ask("sum by (state) (slurmstack_bridge_pods)")
        return {one["metric"]["state"]: float(one["value"][1]) for one in found}

    becomes("the number of pods in each state", numbers, {"running": 1, "refused": 1})


@pytest.mark.parametrize("alert", FAULTS)
def test_fault_fulfils_the_condition_of_its_alert(lab: Lab, watch: Watch, alert: str) -> None:
    # Do not wait for as long, or for as many faults, as operators accept.
    expression = re.sub(r"\A(.+) > \d+\Z", r"\1 > 0", ALERTS[alert]["expr"].strip())
    expression = re.sub(r"\[\d+m\]", "[1m]", expression)

    def fulfilled() -> list[dict[str, Any]]:
        return watch.ask(expression)

    becomes(f"the series of {alert}", fulfilled, [], 120)
    with FAULTS[alert](lab):
        eventually(f"the condition of {alert} is met", fulfilled, 120)
