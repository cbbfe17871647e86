"""Run the engine's command in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

from local.paths import ROOT


class Command:
    """Run `python -m engine` on a project."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")},
            "PULUMI_CONFIG_PASSPHRASE": "open sesame",
        }

    def write(self, program: str) -> None:
        (self.project / "__main__.py").write_text(program)

    def arguments(self, *arguments: str) -> list[str]:
        return [
            *(sys.executable, "-m", "engine", *arguments),
            *("--stack", "dev", "--cwd", str(self.project)),
        ]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments(*arguments),
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
