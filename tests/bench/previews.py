"""Duration of the preview of a new stack, offline and without credentials."""

import os
import statistics
import subprocess
import sys
import tempfile

from local.paths import ROOT
from tests.bench.figures import Figures, say, seconds

_ROUNDS = 3
_STACKS = ("cpu", "gpu")
"""Stack files that do not depend on `make up`."""


def measure(figures: Figures) -> None:
    """Preview each stack from an empty state, with and without the policy pack."""
    for stack in _STACKS:
        for name, packs in (("", ()), (", with the policy pack", ("--policy-pack", "policy"))):
            say(f"previewing {stack} from an empty state{name}")
            took = statistics.median(
                seconds(lambda: _preview(stack, packs))  # noqa: B023  # called at once
                for _ in range(_ROUNDS)
            )
            figures.add(f"preview of {stack} from an empty state{name}", took, at_most=10)


def _preview(stack: str, packs: tuple[str, ...]) -> None:
    """Run a preview with an empty home directory and no credentials."""
    with tempfile.TemporaryDirectory(prefix="slurmstack-bench-") as home:
        subprocess.run(
            [sys.executable, "-m", "engine", "preview", "--stack", stack, *packs],
            cwd=ROOT,
            env={
                "HOME": home,
                "PATH": os.environ["PATH"],
                "PULUMI_BACKEND_URL": f"file://{home}",
                "PULUMI_CONFIG_PASSPHRASE": "none",
                # Make all external requests fail at once.
                "https_proxy": "http://127.0.0.1:9",
                "http_proxy": "http://127.0.0.1:9",
            },
            stdout=subprocess.DEVNULL,
            check=True,
        )
