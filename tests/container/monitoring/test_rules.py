"""Prometheus accepts the alert rules, and alerts fire only in the expected cases."""

import pytest
from docker.models.containers import Container

from tests.container.monitoring.promtool import RULES, THERE, promtool
from tests.support.containers import put

CASES = sorted(file.name for file in (RULES / "tests").glob("*.yaml"))


def test_prometheus_accepts_the_rules(container: Container) -> None:
    names = sorted(file.name for file in RULES.glob("*.yaml"))
    code, output = promtool(container, "check", "rules", "--lint-fatal", *names)
    assert code == 0, output


@pytest.mark.parametrize("file", CASES)
def test_alerts_fire_exactly_in_the_expected_cases(container: Container, file: str) -> None:
    code, output = promtool(container, "test", "rules", f"tests/{file}")
    assert code == 0, output


def test_promtool_reports_a_case_that_fails(container: Container) -> None:
    text = (RULES / "tests" / "gpus.yaml").read_text()
    assert "'0x10 79x50'" in text
    put(container, {f"{THERE}/tests/wrong.yaml": text.replace("'0x10 79x50'", "'0x60'")})

    code, output = promtool(container, "test", "rules", "tests/wrong.yaml")
    assert code == 1
    assert "GpuXid" in output
