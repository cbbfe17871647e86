"""Read the outputs of a deployed stack, with the engine that deploys the stack."""

import json
import os
import subprocess
from typing import Any

from local import deploy
from local.errors import LocalError
from local.paths import ROOT


def read(stack: str) -> dict[str, Any]:
    """Return the outputs with secrets in plain text. Raises LocalError."""
    command = deploy.engine_command(deploy.default_engine())
    answer = subprocess.run(
        [*command, "stack", "output", "--json", "--show-secrets", "--stack", stack],
        cwd=ROOT,
        env=deploy.environment(stack, ROOT, os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        reason = " ".join(answer.stderr.split()).removeprefix("error: ")
        raise LocalError(f"stack '{stack}': cannot read the outputs of the stack: {reason}")
    outputs: dict[str, Any] = json.loads(answer.stdout)
    return outputs
