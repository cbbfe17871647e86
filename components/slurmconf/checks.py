"""Render the checks of a nodeset's nodes, with limits from the settings; see agents/checks."""

import json
from collections.abc import Mapping
from typing import Any

from agents.checks.registry import CHECKS, Check, Nodes, When
from components import conventions as c
from components.settings import Nodeset, Settings
from components.settings.nodesets import INFINIBAND, NVIDIA

_OF_WHOLE_GPUS = frozenset({"gpu-busy", "gpu-count"})
"""Checks that would fail on a node with MIG slices, because other pods use other slices of the same
GPUs."""


def _program(name: str) -> str:
    program = f"{c.CHECKS}/{name}"
    return (
        "#!/bin/sh\n"
        "# An older image of the node may not have this program.\n"
        f"[ ! -x {program} ] || exec {program}\n"
    )


AROUND_JOBS: Mapping[str, str] = {
    f"checks_{name}": _program(name) for name in (When.EPILOG, When.PROLOG)
}
"""Scripts that slurmctld sends to every node. slurm.conf names these scripts instead of the
programs that they start: a node with an older image may lack the programs, and if slurm.conf named
them, each job would fail on this node."""


def node_checks(nodeset: Nodeset, settings: Settings) -> str:
    """Render the checks of the nodeset's nodes, with limits, as JSON; "" if checks are disabled."""
    if not settings.health.enabled:
        return ""
    return json.dumps(_chosen(nodeset, settings), sort_keys=True, indent=1) + "\n"


def around_jobs(settings: Settings) -> bool:
    """Return whether any nodeset has checks before or after jobs."""
    return settings.health.enabled and any(
        CHECKS[name].when - {When.INTERVAL}
        for nodeset in settings.nodesets
        for name in _chosen(nodeset, settings)
    )


def _chosen(nodeset: Nodeset, settings: Settings) -> dict[str, dict[str, Any]]:
    known = _known(nodeset, settings)
    found: dict[str, dict[str, Any]] = {}
    for name, check in CHECKS.items():
        everywhere, here = settings.health.checks.get(name), nodeset.checks.get(name)
        choices = [choice for choice in (everywhere, here) if choice is not None]
        if choices[-1:] == [False] or (here is None and not _concerns(check, nodeset, settings)):
            continue
        found[name] = dict(known.get(name, {}))
        for choice in choices:
            if isinstance(choice, dict):
                found[name].update(choice)
    return found


def _concerns(check: Check, nodeset: Nodeset, settings: Settings) -> bool:
    gpus = nodeset.own_gpus
    match check.nodes:
        case Nodes.ALL:
            return True
        case Nodes.GPUS:
            whole = not (gpus and gpus.mig) or check.name not in _OF_WHOLE_GPUS
            return gpus is not None and gpus.vendor() == NVIDIA and whole
        case Nodes.INFINIBAND:
            return INFINIBAND in nodeset.features
        case Nodes.MUNGE:
            return settings.auth.type == "munge"


def _known(nodeset: Nodeset, settings: Settings) -> dict[str, dict[str, Any]]:
    """Return limits that are derived from other settings."""
    found: dict[str, dict[str, Any]] = {"jail": {"generation": settings.jail.refresh}}
    if nodeset.gpus:
        found["gpu-count"] = {"count": nodeset.gpus.count}
        found["gpu-busy"] = {"shared": nodeset.gpus.shards is not None}
    return found
