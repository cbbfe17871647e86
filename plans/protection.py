"""Refuse plans that remove protected resources or data: only a person may deploy such plans.

Also refuse changes that slurmctld would refuse, so that they fail before the deploy, not during it.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import yaml

from components.conventions import LABEL_COMPONENT, LABEL_NODESET, LOGIN
from engine.planning import Op
from plans.costs import at, quantity
from plans.facts import removed_keys_in_use
from plans.keys import refused_key
from plans.reading import Preview, Step
from policy.holding import HOLDS_DATA

_PROTECTED: Final = (
    "`make up` would refuse this change; revert the edit, or take a backup and deploy"
    " three times by hand: first with slurmstack:protect_data: false as the only"
    " change, which unprotects all data of the stack; second with this edit; third"
    " with protect_data: true"
)
_UNPROTECTED: Final = (
    "`make up` would carry out this change, because protect_data does not protect"
    " this resource; revert the edit, or take a backup and deploy the edit by hand"
)
_SETTINGS: Final[Mapping[str, list[str]]] = yaml.safe_load(
    (Path(__file__).parents[1] / "protected.yaml").read_text()
)
"""The settings whose edit would replace or delete a resource, by the resource's name."""
_HELD: Final[Mapping[str, tuple[str, str]]] = {
    "accounting-archive": ("old records of jobs", "accounting.archive.size"),
    "backup-store-volume": ("backups of the queue, the accounting and the jail", "backup.size"),
    "backup-volume": ("dumps of the accounting database", "accounting.backup.size"),
    "controller-state": ("the queue", "controller.state_size"),
    "database-data": ("records of jobs, accounts and limits", "accounting.database.size"),
    "eks-efs": ("users' homes and files", "jail.size"),
    "eks-lustre": ("users' homes and files", "jail.size"),
    "jail-claim": ("users' homes and files", "jail.size"),
    "jail-server-volume": ("users' homes and files", "jail.size"),
    "longchecks-volume": ("measurements of long checks", "long_checks.size"),
    "monitoring-data": ("stored metrics", "monitoring.bundled.size"),
    "nebius-files": ("users' homes and files", "jail.size"),
}
"""What a volume holds, and the setting of its size, by the resource's name."""
_VERBS: Final = {Op.REPLACE: "would be replaced", Op.DELETE: "would be deleted"}


def refusals(preview: Preview) -> list[str]:
    """Return one line for each refused step."""
    return list(_refusals(preview))


def _refusals(preview: Preview) -> Iterator[str]:
    for step in preview.steps:
        reason = _reason(step)
        if reason:
            remedy = _PROTECTED if step.protected else _UNPROTECTED
            keys = _SETTINGS.get(step.name)
            cause = f" (settings whose edit can cause this: {', '.join(keys)})" if keys else ""
            held = f" ({_HELD[step.name][0]})" if step.name in _HELD else ""
            what = f"{step.type} {step.name}{held}"
            yield f"{what}: {_VERBS[step.op]}, but {reason}{cause}; {remedy}"
        if step.type in _SIZES and step.op is Op.UPDATE:
            yield from _smaller_volume(step)
        if step.name == _CONFIGURATION and step.op is Op.UPDATE:
            yield from _fixed_parameters(step)
    yield from map(refused_key, removed_keys_in_use(preview))


def loses_data(step: Step) -> bool:
    """Return whether a step deletes or replaces a resource that holds data."""
    stays = step.op is Op.DELETE and step.retained
    return step.op in _VERBS and step.type in HOLDS_DATA and not stays


_SIZES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "kubernetes:core/v1:PersistentVolumeClaim": (("spec", "resources", "requests", "storage"), ""),
    "nebius:index/computeV1Filesystem:ComputeV1Filesystem": (("sizeGibibytes",), "Gi"),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (("storageCapacity",), "Gi"),
}
"""By the type of a volume: the path of the input with its size, and the unit of a plain number.

EFS volumes have no size.
"""


def _smaller_volume(step: Step) -> Iterator[str]:
    path, unit = _SIZES[step.type]
    before, after = (f"{at(inputs or {}, *path)}{unit}" for inputs in (step.old, step.new))
    sizes = quantity(before), quantity(after)
    if sizes[0] is not None and sizes[1] is not None and sizes[1] < sizes[0]:
        _, key = _HELD.get(step.name, ("", step.name))
        small, large = _size(sizes[1], after), _size(sizes[0], before)
        yield f"{key}: {small}: a volume cannot shrink; set the size back to {large}"


def _size(size: Decimal, text: str) -> str:
    """Return a number of bytes as in settings; `text` if settings cannot express it."""
    for exponent, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB")):
        if size and size % 1024**exponent == 0:
            return f"{int(size / 1024**exponent)}{unit}"
    return text


_CONFIGURATION: Final = "config-candidate"
_FIXED: Final = (
    ("ClusterName", "cluster_name", "the queue and the accounting records use the old name"),
    ("AuthType", "auth.type", "the running daemons use the old type"),
)
"""Parameters of slurm.conf that cannot change, each with its setting and the reason."""


def _fixed_parameters(step: Step) -> Iterator[str]:
    for parameter, key, reason in _FIXED:
        before, after = (_parameter(inputs, parameter) for inputs in (step.old, step.new))
        if before and after and before != after:
            yield (
                f"{key}: {after}: this setting cannot change after the first deploy, because"
                f" {reason}; set it back to {before}"
            )


def _parameter(inputs: Mapping[str, Any] | None, name: str) -> str | None:
    text = at(inputs or {}, "data", "slurm.conf")
    found = re.search(rf"^{name}=(?:auth/)?(\S+)$", text, re.MULTILINE) if text else None
    return found and found[1]


def _reason(step: Step) -> str | None:
    if step.op not in _VERBS:
        return None
    if step.protected:
        return "is protected"
    if step.op is Op.DELETE and step.retained:
        return None
    if step.type == "kubernetes:apps/v1:StatefulSet" and _has_data(step.old or {}):
        return "has its own data"
    return HOLDS_DATA.get(step.type)


def _has_data(stateful_set: Mapping[str, Any]) -> bool:
    """Return whether the pods of a StatefulSet have their own data.

    Workers and login nodes have no data of their own: they only mount volumes that outlive them.
    """
    spec = at(stateful_set, "spec") or {}
    if spec.get("volumeClaimTemplates"):
        return True
    labels = at(spec, "template", "metadata", "labels") or {}
    if LABEL_NODESET in labels or labels.get(LABEL_COMPONENT) == LOGIN:
        return False
    volumes = at(spec, "template", "spec", "volumes") or []
    return any(at(volume, "persistentVolumeClaim") for volume in volumes)
