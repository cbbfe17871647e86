"""Messages of agents are single lines, and the log agent reads the severity from them."""

import json

import pytest

from agents.logs.lines import Severity, severity
from agents.say import Level, fail, say

LEVELS: list[tuple[Level, Severity]] = [
    ("info", Severity.INFO),
    ("warn", Severity.WARN),
    ("error", Severity.ERROR),
]
TEXT = 'nvidia-smi: "level=debug"\nerror:\tC:\\ \x1b[31m – Xid 79'


@pytest.mark.parametrize(("level", "expected"), LEVELS)
def test_message_is_one_line_with_its_level(
    capsys: pytest.CaptureFixture[str], level: Level, expected: Severity
) -> None:
    say(level, TEXT)

    (line,) = capsys.readouterr().err.splitlines()
    assert severity(line) is expected
    assert json.loads(line.removeprefix(f"level={level} msg=")) == TEXT


def test_failure_is_one_line_with_severity_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail("not finished: sacctmgr:\n  Connection refused")

    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: not finished: sacctmgr: Connection refused"
    assert severity(line) is Severity.ERROR
