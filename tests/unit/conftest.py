"""Settings of hypothesis for all unit tests, and the size of the machine that they assume."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail a test.
settings.register_profile(
    "without time limits",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("without time limits")


@pytest.fixture(autouse=True)
def _large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings about local stacks depend on the machine's CPUs."""
    monkeypatch.setattr("components.settings.clusters.local.machine_cpus", lambda: 64)
