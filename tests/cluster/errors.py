"""Error messages as a user reads them."""

import subprocess


def error_line(answer: subprocess.CompletedProcess[str]) -> str:
    """Return the user's single error line; fail on success, a traceback or missing output."""
    output = answer.stdout + answer.stderr
    assert answer.returncode != 0, output
    assert "Traceback" not in output, output
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, output
    return lines[0]
