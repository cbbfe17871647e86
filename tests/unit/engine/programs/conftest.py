"""A project in a temporary directory, whose resources are dictionary entries."""

from pathlib import Path

import pytest

from engine import providers, secrets
from engine.providers import Provider
from engine.providers.random import RandomProvider
from engine.values import Properties
from tests.unit.engine.programs.fake import FakeProvider, World
from tests.unit.engine.programs.sandbox import Sandbox


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    world = World()

    def load(package: str, config: Properties, *, preview: bool) -> Provider:
        return RandomProvider() if package == "random" else FakeProvider(world, config)

    monkeypatch.setattr(providers, "load", load)
    monkeypatch.setattr(secrets, "_ROUNDS", 1000)  # no test depends on the key's strength
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open sesame")
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    (tmp_path / "Pulumi.yaml").write_text("name: sandbox\nruntime: python\n")
    return Sandbox(tmp_path, world)
