"""What the nodeset's settings say of its checks, as the node finds it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.checks.registry import CHECKS, Check, Effect


class SettingsError(Exception):
    """The file cannot be used; one line."""


@dataclass(frozen=True)
class Chosen:
    """A check as this node's settings have it."""

    check: Check
    effect: Effect
    limits: Mapping[str, Any]


def read(path: Path) -> list[Chosen]:
    """The checks of this node, in the registry's order. Raises `SettingsError`.

    A name that this release does not know is another release's: settings come before images.
    """
    try:
        found = dict[str, dict[str, Any]](json.loads(path.read_text()))
        return [_chosen(check, found[name]) for name, check in CHECKS.items() if name in found]
    except (OSError, TypeError, ValueError) as error:
        raise SettingsError(f"{path}: cannot be used: {' '.join(str(error).split())}") from error


def _chosen(check: Check, given: Mapping[str, Any]) -> Chosen:
    given = dict(given)
    limits = {name: given.get(name, default) for name, default in check.limits.items()}
    return Chosen(check, Effect(given.get("effect", check.effect)), limits)
