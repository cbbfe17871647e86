"""Settings of hypothesis for all unit tests, and the number of CPUs that the tests assume."""

import pytest
from hypothesis import HealthCheck, settings

# Remove time limits, because tests must not fail on a busy machine.
settings.register_profile(
    "without time limits",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("without time limits")


@pytest.fixture(autouse=True)
def _large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the machine has 64 CPUs, because warnings about local stacks use this number."""
    monkeypatch.setattr("components.settings.clusters.local.machine_cpus", lambda: 64)
