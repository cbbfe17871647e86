"""Alertmanager accepts the example in the documentation."""

import re

from docker.models.containers import Container

from local.paths import ROOT
from tests.support import open_shells
from tests.support.containers import put


def test_alertmanager_accepts_the_documented_example(container: Container) -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    (example,) = re.findall(r"```yaml\n(# alertmanager\.yml\n.*?)```", page, re.DOTALL)
    put(container, {"/tmp/alertmanager.yml": example})

    code, output = open_shells.run(container, "amtool check-config /tmp/alertmanager.yml")

    assert code == 0, output
    assert "2 receivers" in output
