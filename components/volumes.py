"""Volumes that settings name, as pods have them."""

from collections.abc import Iterable

from components import conventions as c
from components.pods import Spec, mount
from components.settings import Empty, Source, Submount


def volume(name: str, source: Source) -> Spec:
    """A pod's volume."""
    found: Spec
    if source.claim:
        found = {"persistentVolumeClaim": {"claimName": source.claim}}
    elif source.host_path:
        found = {"hostPath": {"path": source.host_path, "type": "Directory"}}
    elif source.nfs:
        found = {"nfs": {"server": source.nfs.server, "path": source.nfs.path}}
    elif source.config_map:
        found = {"configMap": {"name": source.config_map}}
    elif source.secret:
        found = {"secret": {"secretName": source.secret, "defaultMode": 0o440}}
    else:
        empty = source.empty or Empty()
        found = {
            "emptyDir": {
                **({"sizeLimit": f"{empty.size}Mi"} if empty.size else {}),
                **({"medium": "Memory"} if empty.medium == "memory" else {}),
            }
        }
    return {"name": name, **found}


def submount_volumes(given: Iterable[Submount]) -> list[Spec]:
    """Volumes of a pod that has the jail."""
    return [volume(f"jail-{one.name}", one) for one in _ordered(given)]


def submount_mounts(given: Iterable[Submount]) -> list[Spec]:
    """Where in the jail they are mounted."""
    return [
        mount(f"jail-{one.name}", f"{c.JAIL}{one.path}", read_only=one.read_only)
        for one in _ordered(given)
    ]


def _ordered(given: Iterable[Submount]) -> list[Submount]:
    """Outer ones first."""
    return sorted(given, key=lambda one: one.path)
