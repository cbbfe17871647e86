"""Errors as a user reads them."""

import subprocess


def error_line(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line that a user gets; fails on a success, on a traceback, on silence."""
    said = answer.stdout + answer.stderr
    assert answer.returncode != 0, said
    assert "Traceback" not in said, said
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, said
    return lines[0]
