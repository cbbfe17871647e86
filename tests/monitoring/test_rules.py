"""The rules are what Prometheus takes, and fire and are silent where their cases say so."""

from pathlib import Path
from typing import cast

import pytest
from docker.models.containers import Container

from tests.slurmctld.conftest import Start, put, start_container

__all__ = ["start_container"]

RULES = Path(__file__).resolve().parents[2] / "monitoring" / "alerts"
CASES = sorted(file.name for file in (RULES / "tests").glob("*.yaml"))
THERE = "/tmp/alerts"


@pytest.fixture(scope="module")
def container(start_container: Start) -> Container:
    there = start_container("monitoring")
    files = {file.relative_to(RULES): file.read_text() for file in RULES.rglob("*.yaml")}
    put(there, {f"{THERE}/{path}": text for path, text in files.items()})
    return there


def promtool(container: Container, *arguments: str) -> tuple[int | None, str]:
    """Its exit code, and what it says."""
    code, output = container.exec_run(["promtool", *arguments], workdir=THERE)
    return code, cast(bytes, output).decode()


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
