"""Run commands on this machine."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from local.paths import ROOT
from tests.support.waiting import patience


def execute(
    command: Sequence[str | Path],
    *,
    check: bool = True,
    timeout: float = 120,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's folder.

    Raises AssertionError with the output if the exit code is not 0, unless `check` is False, and
    TimeoutExpired after `timeout` seconds.
    """
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout * patience(),
        check=False,
        cwd=ROOT,
        input=stdin,
        env=env,
        stdin=subprocess.DEVNULL if stdin is None else None,
    )
    return checked(result) if check else result


def checked(result: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Return a command's result. Raises AssertionError if its exit code is not 0."""
    assert result.returncode == 0, (
        f"{result.args}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
    )
    return result
