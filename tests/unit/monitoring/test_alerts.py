"""Each alert uses existing metrics, and has a runbook and test cases for promtool.

A test case says whether the alert must fire or must not fire.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from agents.checks.registry import CHECKS
from components.settings import Reconciler
from local.paths import ROOT
from tests.cluster.bridge import faults as bridge_faults
from tests.cluster.health import faults

RULES = ROOT / "monitoring" / "alerts"
RUNBOOKS = ROOT / "docs" / "runbooks"
METRICS = ROOT / "docs" / "metrics.md"
SECTIONS = ("What it means", "What users notice", "How to look", "What to do", "When it ends")
LONGEST = 40
"""Maximum number of lines in a runbook."""

OTHERS = {
    "up",
    *("prometheus_config_last_reload_successful", "prometheus_notifications_dropped_total"),
    *("alertmanager_config_last_reload_successful", "alertmanager_notifications_failed_total"),
    *("node_filesystem_avail_bytes", "node_filesystem_size_bytes"),
    *("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_XID_ERRORS"),
}
"""Metrics that rules use, but that no agent of the stack exports."""
Rule = Mapping[str, Any]


def rules() -> Iterator[Rule]:
    for file in sorted(RULES.glob("*.yaml")):
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from group["rules"]


ALL = list(rules())
ALERTS = {rule["alert"]: rule for rule in ALL if "alert" in rule}
RECORDED = {rule["record"]: rule for rule in ALL if "record" in rule}


def file_name(alert: str) -> str:
    return re.sub(r"(?<=.)(?=[A-Z])", "-", alert).lower() + ".md"


_STRING = re.compile(r'"[^"]*"')
# Parts of an expression that are not metric names: labels, ranges, and lists of labels.
_NO_NAMES = re.compile(
    r"\{[^}]*\}|\[[^]]*\]"
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\boffset\s+\w+"
)
_NAME = re.compile(r"(?<![\w:])[A-Za-z_:][\w:]*(?!\s*\(|[\w:])")


def metrics(expression: str) -> set[str]:
    """Return the metric names in a PromQL expression."""
    found = _NAME.findall(_NO_NAMES.sub(" ", _STRING.sub("", expression)))
    return set(found) - {"and", "or", "unless", "bool"}


def asked_for(rule: Rule) -> set[str]:
    """Return the metrics that a rule uses, directly or through recording rules."""
    found = metrics(rule["expr"])
    return found | {name for one in found & RECORDED.keys() for name in asked_for(RECORDED[one])}


def test_metric_names_are_extracted_from_an_expression() -> None:
    expression = """
      sum by (cause) (rate(slurm_a_total{cause=~"b|c{2}", state="on"}[5m] offset 1h))
      / on () group_left () d:e:sum > bool 1e3 and on (node) max without (job) (f)
      unless (time() - g > 8 * 86400) or absent(h == 1)
    """
    assert metrics(expression) == {"slurm_a_total", "d:e:sum", "f", "g", "h"}


def test_alert_rules_use_only_existing_metrics() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", METRICS.read_text(), re.MULTILINE))
    asked = {name for rule in ALL for name in metrics(rule["expr"])}

    assert not asked - documented - OTHERS - RECORDED.keys()
    assert not OTHERS - asked, "remove the metrics that no rule uses from OTHERS"


def test_recorded_metrics_are_used_and_follow_the_naming_convention() -> None:
    """Source of the convention: https://prometheus.io/docs/practices/rules/"""
    asked = {name for rule in ALL for name in metrics(rule["expr"])}

    assert RECORDED.keys() <= asked
    assert all(re.fullmatch(r"[a-z]+:[a-z_]+:[a-z0-9]+", name) for name in RECORDED)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_wait_severity_component_and_runbook(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["for"]
    assert set(rule["labels"]) == {"severity", "component"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/runbooks/{file_name(alert)}"


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_runbook_in_the_common_form(alert: str) -> None:
    text = (RUNBOOKS / file_name(alert)).read_text()
    title, *sections = re.findall(r"^#+ (.+)$", text, re.MULTILINE)

    assert title == alert
    assert tuple(sections) == SECTIONS
    assert len(text.splitlines()) <= LONGEST
    assert all(part.strip() for part in re.split(r"^## .+$", text, flags=re.MULTILINE))
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (RUNBOOKS / link).exists(), link


def test_every_runbook_belongs_to_an_alert_and_is_listed() -> None:
    files = {file.name for file in RUNBOOKS.glob("*.md")} - {"README.md"}
    rows = re.findall(
        r"^\| \[(\w+)\]\(([\w.-]+)\) \| (\w+) \| (\w+) \|",
        (RUNBOOKS / "README.md").read_text(),
        re.MULTILINE,
    )

    assert files == {file_name(alert) for alert in ALERTS}
    assert rows == [
        (name, file_name(name), rule["labels"]["severity"], rule["labels"]["component"])
        for name, rule in ALERTS.items()
    ]


def test_hardware_alert_lists_exactly_the_hardware_causes_of_the_reconciler() -> None:
    assert causes("SlurmNodeHardware") == set(Reconciler().hardware)


@pytest.mark.parametrize("alert", ["SlurmMungeTrouble", "SlurmClockTrouble"])
def test_alert_on_a_cause_names_existing_checks(alert: str) -> None:
    assert causes(alert) <= CHECKS.keys()


def causes(alert: str) -> set[str]:
    (words,) = set(re.findall(r'cause=~?"([^"]*)"', ALERTS[alert]["expr"]))
    return set(words.split("|"))


# --- Cases that promtool runs --------------------------------------------------------------------


def cases() -> Iterator[tuple[str, bool, Rule]]:
    """Yield the alert of each case, whether the alert must fire, and the case."""
    for file in sorted((RULES / "tests").glob("*.yaml")):
        for case in yaml.safe_load(file.read_text())["tests"]:
            if named := re.match(r"(\w+) (fires|is silent) \w+", case["name"]):
                yield named[1], named[2] == "fires", case


CASES = list(cases())


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_firing_and_a_silent_case(alert: str) -> None:
    assert {fires for named, fires, _ in CASES if named == alert} == {True, False}


@pytest.mark.parametrize(
    ("alert", "fires", "case"), CASES, ids=[case["name"] for *_, case in CASES]
)
def test_promtool_case_matches_the_alert_and_outcome_in_its_name(
    alert: str, fires: bool, case: Rule
) -> None:
    (asked,) = case["promql_expr_test"]
    assert alert in ALERTS
    assert f'ALERTS{{alertname="{alert}", alertstate="firing"}}' in asked["expr"]
    assert bool(asked.get("exp_samples")) == fires
    if not fires:
        # The alert must never fire, although the case has series of the alert's metrics.
        assert asked["expr"].startswith("count_over_time(")
        assert f"[{asked['eval_time']}]" in asked["expr"]
        given = {one["series"].partition("{")[0] for one in case["input_series"]}
        assert given & asked_for(ALERTS[alert])


# --- Alerts on a real cluster --------------------------------------------------------------------


def test_every_alert_is_tested_on_a_real_cluster() -> None:
    tables = (faults.QUICK, faults.LASTING)
    delivered = {alert for table in tables for _, alerts in table.values() for alert in alerts}
    # Alertmanager cannot deliver this alert, so the test only checks that the alert fires.
    assert delivered | bridge_faults.FAULTS.keys() == ALERTS.keys() - {"AlertsNotDelivered"}
