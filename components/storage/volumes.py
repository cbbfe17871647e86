"""Volumes from the settings, as volumes and mounts of pods."""

from collections.abc import Iterable

from components import conventions as c
from components.pods import Spec, mount
from components.settings import Empty, Source, Submount, Volume


def volume(name: str, source: Source) -> Spec:
    """Return a pod's volume for a source."""
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
    """Return the volumes in the jail, for a pod that mounts the jail."""
    return [volume(f"jail-{one.name}", one) for one in _ordered(given)]


def submount_mounts(given: Iterable[Submount]) -> list[Spec]:
    """Return the mounts of the volumes in the jail. The pod mounts these volumes outside the jail,
    so that users cannot place symbolic links in the mounts' paths."""
    return [
        mount(f"jail-{one.name}", _place(f"jail-{one.name}"), read_only=one.read_only)
        for one in _ordered(given)
    ]


def volume_mounts(given: Iterable[Volume]) -> list[Spec]:
    """Return the mounts of the volumes that the settings give to a nodeset's workers.

    The pod mounts even volumes that jobs see outside the jail, so that users cannot place symbolic
    links in the mounts' paths.
    """
    return [
        mount(one.name, _place(one.name) if one.in_jail() else one.path, read_only=one.read_only)
        for one in given
    ]


def shown(submounts: Iterable[Submount], further: Iterable[Volume] = ()) -> list[str]:
    """Return `source=target` for each mount that `agents.mounts` must create in the jail."""
    places = [(one.path, f"jail-{one.name}") for one in submounts]
    places += [(path, one.name) for one in further if (path := one.in_jail())]
    return [f"{_place(name)}={path}" for path, name in sorted(places)]


def shows(shown: Iterable[str]) -> list[Spec]:
    """Return the environment of a container whose start script calls `agents.mounts`."""
    return [{"name": "JAIL_MOUNTS", "value": " ".join(shown)}]


def _place(name: str) -> str:
    return f"{c.JAIL_VOLUMES}/{name}"


def _ordered(given: Iterable[Submount]) -> list[Submount]:
    """Sort volumes by path, so that a volume comes before the volumes below its path."""
    return sorted(given, key=lambda one: one.path)
