"""promtool in a container that contains the alerts."""

from typing import cast

from docker.models.containers import Container

from local.paths import ROOT

RULES = ROOT / "monitoring" / "alerts"
THERE = "/tmp/alerts"


def promtool(container: Container, *arguments: str) -> tuple[int | None, str]:
    """Return exit code and output of promtool."""
    code, output = container.exec_run(["promtool", *arguments], workdir=THERE)
    return code, cast(bytes, output).decode()
