"""Fixtures for the Kubernetes provider without a cluster."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.providers.kubernetes import KubernetesProvider
from engine.providers.kubernetes import api as api_module
from tests.unit.engine.providers.fake_api import FakeApi, serving


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    """A fake API server."""
    with serving() as api:
        yield api


@pytest.fixture
def provider(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KubernetesProvider]:
    """Return a function that creates providers for the fake API.

    The providers wait only a millisecond before they retry a request.
    """
    monkeypatch.setattr(api_module, "_FIRST_PAUSE", 0.001)

    def make(*, preview: bool = False, **config: Any) -> KubernetesProvider:
        return KubernetesProvider({"kubeconfig": fake.kubeconfig, **config}, preview=preview)

    return make
