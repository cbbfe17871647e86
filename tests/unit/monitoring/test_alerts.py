"""Each alert asks for metrics that there are, and has a runbook and cases with and without it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from agents.checks.registry import CHECKS
from components.settings import Reconciler
from local.paths import ROOT
from tests.cluster.health import faults

RULES = ROOT / "monitoring" / "alerts"
RUNBOOKS = ROOT / "docs" / "runbooks"
METRICS = ROOT / "docs" / "metrics.md"
SECTIONS = ("What it means", "What users notice", "How to look", "What to do", "When it ends")
LONGEST = 40
"""Lines of a runbook."""

OTHERS = {
    "up",
    *("prometheus_config_last_reload_successful", "prometheus_notifications_dropped_total"),
    *("alertmanager_config_last_reload_successful", "alertmanager_notifications_failed_total"),
    *("node_filesystem_avail_bytes", "node_filesystem_size_bytes"),
    *("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_XID_ERRORS"),
}
"""Metrics that are not ours: Prometheus', Alertmanager's, node exporter's and DCGM exporter's."""
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
# Of the rest of an expression, what is no name of a metric: labels, ranges, and lists of labels.
_NO_NAMES = re.compile(
    r"\{[^}]*\}|\[[^]]*\]"
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\boffset\s+\w+"
)
_NAME = re.compile(r"(?<![\w:])[A-Za-z_:][\w:]*(?!\s*\(|[\w:])")


def metrics(expression: str) -> set[str]:
    """Names of the metrics that an expression of PromQL asks for."""
    found = _NAME.findall(_NO_NAMES.sub(" ", _STRING.sub("", expression)))
    return set(found) - {"and", "or", "unless", "bool"}


def asked_for(rule: Rule) -> set[str]:
    """The same of a rule, through what is recorded for it."""
    found = metrics(rule["expr"])
    return found | {name for one in found & RECORDED.keys() for name in asked_for(RECORDED[one])}


def test_names_of_metrics_are_found_in_an_expression() -> None:
    expression = """
      sum by (cause) (rate(slurm_a_total{cause=~"b|c{2}", state="on"}[5m] offset 1h))
      / on () group_left () d:e:sum > bool 1e3 and on (node) max without (job) (f)
      unless (time() - g > 8 * 86400) or absent(h == 1)
    """
    assert metrics(expression) == {"slurm_a_total", "d:e:sum", "f", "g", "h"}


def test_every_metric_that_is_asked_for_is_one_that_there_is() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", METRICS.read_text(), re.MULTILINE))
    asked = {name for rule in ALL for name in metrics(rule["expr"])}

    assert not asked - documented - OTHERS - RECORDED.keys()
    assert not OTHERS - asked, "no rule asks for it any more"


def test_what_is_recorded_is_asked_for_and_is_named_by_the_convention() -> None:
    """https://prometheus.io/docs/practices/rules/"""
    asked = {name for rule in ALL for name in metrics(rule["expr"])}

    assert RECORDED.keys() <= asked
    assert all(re.fullmatch(r"[a-z]+:[a-z_]+:[a-z0-9]+", name) for name in RECORDED)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_waits_and_says_how_bad_it_is_and_what_it_is_of(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["for"]
    assert set(rule["labels"]) == {"severity", "component"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/runbooks/{file_name(alert)}"


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_runbook_of_the_one_form(alert: str) -> None:
    text = (RUNBOOKS / file_name(alert)).read_text()
    title, *sections = re.findall(r"^#+ (.+)$", text, re.MULTILINE)

    assert title == alert
    assert tuple(sections) == SECTIONS
    assert len(text.splitlines()) <= LONGEST
    assert all(part.strip() for part in re.split(r"^## .+$", text, flags=re.MULTILINE))
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (RUNBOOKS / link).exists(), link


def test_every_runbook_is_of_an_alert_and_in_the_table() -> None:
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


def test_hardware_is_what_the_reconciler_takes_for_it() -> None:
    assert causes("SlurmNodeHardware") == set(Reconciler().hardware)


@pytest.mark.parametrize("alert", ["SlurmMungeTrouble", "SlurmClockTrouble"])
def test_a_cause_that_has_an_alert_of_its_own_is_a_check(alert: str) -> None:
    assert causes(alert) <= CHECKS.keys()


def causes(alert: str) -> set[str]:
    (words,) = set(re.findall(r'cause=~?"([^"]*)"', ALERTS[alert]["expr"]))
    return set(words.split("|"))


# --- The cases that promtool plays through -------------------------------------------------------


def cases() -> Iterator[tuple[str, bool, Rule]]:
    """Of each case: its alert, whether it is to fire, and the case."""
    for file in sorted((RULES / "tests").glob("*.yaml")):
        for case in yaml.safe_load(file.read_text())["tests"]:
            if named := re.match(r"(\w+) (fires|is silent) \w+", case["name"]):
                yield named[1], named[2] == "fires", case


CASES = list(cases())


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_cases_in_which_it_fires_and_in_which_it_is_silent(alert: str) -> None:
    assert {fires for named, fires, _ in CASES if named == alert} == {True, False}


@pytest.mark.parametrize(
    ("alert", "fires", "case"), CASES, ids=[case["name"] for *_, case in CASES]
)
def test_a_case_asks_for_its_alert_and_expects_what_its_name_says(
    alert: str, fires: bool, case: Rule
) -> None:
    (asked,) = case["promql_expr_test"]
    assert alert in ALERTS
    assert f'ALERTS{{alertname="{alert}", alertstate="firing"}}' in asked["expr"]
    assert bool(asked.get("exp_samples")) == fires
    if not fires:
        # At no time at all, and not for want of anything to ask for.
        assert asked["expr"].startswith("count_over_time(")
        assert f"[{asked['eval_time']}]" in asked["expr"]
        given = {one["series"].partition("{")[0] for one in case["input_series"]}
        assert given & asked_for(ALERTS[alert])


# --- Real faults ---------------------------------------------------------------------------------


def test_every_alert_is_told_on_a_real_cluster() -> None:
    tables = (faults.QUICK, faults.LASTING)
    told = {alert for table in tables for _, alerts in table.values() for alert in alerts}
    # Alertmanager cannot deliver that it cannot deliver: that one is seen to fire.
    assert told == ALERTS.keys() - {"AlertsNotDelivered"}
