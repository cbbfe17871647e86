"""Settings of hypothesis for all unit tests."""

from hypothesis import HealthCheck, settings

# A busy machine must not fail a test.
settings.register_profile(
    "without time limits",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("without time limits")
