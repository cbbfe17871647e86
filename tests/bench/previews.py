"""How long a stack that nobody has made takes to preview, offline and without a credential."""

import os
import statistics
import subprocess
import sys
import tempfile

from local.paths import ROOT
from tests.bench.figures import Figures, say, seconds

_ROUNDS = 3
_STACKS = ("cpu", "gpu")
"""The stack files that need nothing of `make up`."""


def measure(figures: Figures) -> None:
    """Each stack from an empty state, with the policy pack and without."""
    for stack in _STACKS:
        for name, packs in (("", ()), (", with the policy pack", ("--policy-pack", "policy"))):
            say(f"previewing {stack} from nothing{name}")
            took = statistics.median(
                seconds(lambda: _preview(stack, packs))  # noqa: B023  # called at once
                for _ in range(_ROUNDS)
            )
            figures.add(f"preview of {stack} from nothing{name}", took, at_most=10)


def _preview(stack: str, packs: tuple[str, ...]) -> None:
    """By somebody who has the project and nothing else."""
    with tempfile.TemporaryDirectory(prefix="slurmstack-bench-") as home:
        subprocess.run(
            [sys.executable, "-m", "engine", "preview", "--stack", stack, *packs],
            cwd=ROOT,
            env={
                "HOME": home,
                "PATH": os.environ["PATH"],
                "PULUMI_BACKEND_URL": f"file://{home}",
                "PULUMI_CONFIG_PASSPHRASE": "none",
                # Whoever asks for anything outside is refused at once.
                "https_proxy": "http://127.0.0.1:9",
                "http_proxy": "http://127.0.0.1:9",
            },
            stdout=subprocess.DEVNULL,
            check=True,
        )
