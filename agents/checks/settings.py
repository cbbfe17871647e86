"""Read the settings of this node's checks, from a file that the deploy writes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.checks.registry import CHECKS, Check, Effect


class SettingsError(Exception):
    """The settings file is unusable. The message is one line."""


@dataclass(frozen=True)
class Chosen:
    """Check that runs on this node, with its effect and limits from the settings."""

    check: Check
    effect: Effect
    limits: Mapping[str, Any]


def read(path: Path) -> list[Chosen]:
    """Return the checks of this node, in the registry's order. Raises `SettingsError`.

    Ignores unknown checks: during an upgrade, a node can have the new version's settings while it
    still runs the old version's program.
    """
    try:
        found = dict[str, dict[str, Any]](json.loads(path.read_text()))
        return [_chosen(check, found[name]) for name, check in CHECKS.items() if name in found]
    except (OSError, TypeError, ValueError) as error:
        raise SettingsError(
            f"{path}: cannot read the settings of the checks: {' '.join(str(error).split())}; "
            "deploy again"
        ) from error


def _chosen(check: Check, given: Mapping[str, Any]) -> Chosen:
    given = dict(given)
    limits = {name: given.get(name, default) for name, default in check.limits.items()}
    return Chosen(check, Effect(given.get("effect", check.effect)), limits)
