"""The rules are what Prometheus takes, and fire and are silent where their cases say so."""

import pytest
from docker.models.containers import Container

from tests.container.monitoring.promtool import RULES, THERE, promtool
from tests.support.containers import put

CASES = sorted(file.name for file in (RULES / "tests").glob("*.yaml"))


def test_prometheus_takes_the_rules(container: Container) -> None:
    names = sorted(file.name for file in RULES.glob("*.yaml"))
    code, said = promtool(container, "check", "rules", "--lint-fatal", *names)
    assert code == 0, said


@pytest.mark.parametrize("file", CASES)
def test_alerts_fire_and_are_silent_where_their_cases_say_so(
    container: Container, file: str
) -> None:
    code, said = promtool(container, "test", "rules", f"tests/{file}")
    assert code == 0, said


def test_a_case_that_does_not_hold_is_told(container: Container) -> None:
    text = (RULES / "tests" / "gpus.yaml").read_text()
    assert "'0x10 79x50'" in text
    put(container, {f"{THERE}/tests/wrong.yaml": text.replace("'0x10 79x50'", "'0x60'")})

    code, said = promtool(container, "test", "rules", "tests/wrong.yaml")
    assert code == 1
    assert "GpuXid" in said
