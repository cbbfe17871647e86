"""An upgrade neither renames nor replaces resources of earlier releases.

`released.json` lists the resources of a stack with all components, as the program created them on
2026-11-27 (commit 584916b). The function `fixed_fields` wrote this list from the recorded
resources.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixedfields import fixed_fields
from tests.support.graph import record
from tests.support.stack import config, enable_everything

RELEASED: dict[str, Any] = json.loads(Path(__file__).with_name("released.json").read_text())


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return fixed_fields(record(monkeypatch, config(enable_everything)))


def test_upgrade_deletes_no_resource(now: dict[str, Any]) -> None:
    assert sorted(RELEASED.keys() - now.keys()) == []


def test_upgrade_replaces_no_resource(now: dict[str, Any]) -> None:
    changed = {urn: now[urn] for urn, old in RELEASED.items() if now.get(urn) != old}

    assert changed == {}
