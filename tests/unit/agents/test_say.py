"""What agents tell is a line each, and where lines are sent it is read how grave it is."""

import json

import pytest

from agents.logs.lines import Severity, severity
from agents.say import Level, fail, say

SAID: list[tuple[Level, Severity]] = [
    ("info", Severity.INFO),
    ("warn", Severity.WARN),
    ("error", Severity.ERROR),
]
TEXT = 'nvidia-smi: "level=debug"\nerror:\tC:\\ \x1b[31m – Xid 79'


@pytest.mark.parametrize(("level", "expected"), SAID)
def test_a_daemons_words_are_one_line_of_their_level(
    capsys: pytest.CaptureFixture[str], level: Level, expected: Severity
) -> None:
    say(level, TEXT)

    (line,) = capsys.readouterr().err.splitlines()
    assert severity(line) is expected
    assert json.loads(line.removeprefix(f"level={level} msg=")) == TEXT


def test_why_a_command_failed_is_one_line_that_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail("not finished: sacctmgr:\n  Connection refused")

    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: not finished: sacctmgr: Connection refused"
    assert severity(line) is Severity.ERROR
