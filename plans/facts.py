"""Facts about a step that a reader of the preview needs, from the step's inputs."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from components.conventions import ACCOUNTS_FILE, ANNOTATION_NODES, GUARD
from engine.paths import parse_path
from engine.planning import Op
from engine.values import UNKNOWN_STRING
from plans.costs import at
from plans.reading import Preview, Step, rolls_pods

Inputs = Mapping[str, Any]
KEY: Final = r"auth-password-(\d+)"
"""Name of a key of `auth.rotations`, with the Unix time at which pods start to use it."""
AHEAD: Final = 180
"""Seconds until a new key is in every pod (docs/settings.md, `auth.rotations`)."""
_GRACE: Final = 300
"""Seconds for which pods accept the previous key (docs/settings.md, `auth.rotations`)."""


def replicas(inputs: Inputs | None) -> int | None:
    """Return the number of pods, or the maximum of nodes on demand; None if it is unknown."""
    found = at(inputs or {}, "spec", "replicas")
    if found is None:
        found = at(inputs or {}, "metadata", "annotations", ANNOTATION_NODES)
    try:
        return None if found is None else int(found)
    except ValueError:  # unknown in this preview
        return None


def shrinks(step: Step) -> bool:
    return step.op is Op.UPDATE and (replicas(step.new) or 0) < (replicas(step.old) or 0)


def loses_pods(step: Step) -> bool:
    """Return whether present pods of a workload end."""
    return rolls_pods(step) or shrinks(step) or step.op in (Op.REPLACE, Op.DELETE)


def is_static(step: Step) -> bool:
    """Return whether slurm.conf lists the present nodes, so they send no description."""
    return bool(_variable(step.old, "DRAIN_GRACE")) and not _variable(step.old, "NODE_CONF")


def grace(step: Step) -> str:
    """Name the drain_grace that applies to present pods."""
    old, new = (_variable(inputs, "DRAIN_GRACE") for inputs in (step.old, step.new))
    if not old:
        return "drain_grace"
    which = "drain_grace" if new in (old, "") else "the old drain_grace"
    return f"{which} ({old} s)"


def changes_guard(step: Step) -> bool:
    """Return whether the packet filter of the pods changes, and not only its image."""
    return _guard(step.old) != _guard(step.new) and loses_pods(step)


def changes_data(step: Step) -> bool:
    """Return whether the contents of a Secret or ConfigMap change, not only its metadata."""
    paths = (parse_path(change.path) for change in step.changes)
    return step.op is Op.DELETE or any(path[:1] in (("data",), ("stringData",)) for path in paths)


def starts(name: str) -> int | None:
    """Return the Unix time at which pods start to use a key of `auth.rotations`."""
    found = re.fullmatch(KEY, name)
    return int(found[1]) if found else None


def removed_keys_in_use(preview: Preview) -> list[int]:
    """Return the times of removed keys that pods use now, or within three minutes."""
    now = time.time()
    secret = next((step for step in preview.steps if step.name == "auth-secret"), None)
    removed = {starts(step.name) for step in preview.steps if step.op is Op.DELETE} - {None}
    present = {starts(name) for name in secret.sources} if secret else set()
    latest = max((since for since in present if since and since <= now - _GRACE), default=0)
    return sorted(since for since in removed if since and latest <= since < now + AHEAD)


def removed_partitions(step: Step) -> list[str]:
    """Return the partitions that a new slurm.conf no longer has."""
    return _gone(step, "slurm.conf", _partitions)


def removed_users(step: Step) -> list[str]:
    """Return the users that a new passwd(5) no longer has."""
    return _gone(step, "passwd", lambda text: set(_uids(text)))


def changed_uids(step: Step) -> list[str]:
    """Return the users who get another uid."""
    before, after = _uids_of(step)
    return [name for name, uid in after.items() if before.get(name, uid) != uid]


def reused_uids(step: Step) -> list[str]:
    """Return the users who get the uid of another user, each with the uid and this user."""
    before, after = _uids_of(step)
    owners = {uid: name for name, uid in before.items()}
    return [
        f"{name} ({uid}, before: {owners[uid]})"
        for name, uid in after.items()
        if owners.get(uid, name) != name
    ]


def _uids_of(step: Step) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return uids before and after a step; nothing if a passwd(5) is missing or unknown."""
    before, after = (file_of(inputs, "passwd") for inputs in (step.old, step.new))
    return ({}, {}) if before is None or after is None else (_uids(before), _uids(after))


def _uids(passwd: str) -> dict[str, str]:
    """Return the uid of each user, by name."""
    lines = (line.split(":") for line in _lines(passwd))
    return {fields[0]: fields[2] for fields in lines}


def removed_associations(step: Step, *, with_jobs: bool) -> list[str]:
    """Return the accounts, users in accounts, and QOS that Slurm removes.

    With `with_jobs`, return those whose jobs are cancelled, else those that must have no jobs. The
    names are those of `accounting.remove_with_jobs`. An account includes its users.
    """
    gone = _gone(step, ACCOUNTS_FILE, _associations)
    wanted = _wanted(file_of(step.new, ACCOUNTS_FILE) or "")
    cancelled = set(wanted.get("remove_with_jobs") or ())
    alone = [
        name
        for name in gone
        if not (name.startswith("user ") and name[name.rindex("account ") :] in gone)
    ]
    return [name for name in alone if (name in cancelled) == with_jobs]


def _gone(step: Step, file: str, names: Callable[[str], set[str]]) -> list[str]:
    """Return the names that only the old file has; none if a file is missing or unknown."""
    before, after = (file_of(inputs, file) for inputs in (step.old, step.new))
    return [] if before is None or after is None else sorted(names(before) - names(after))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def _partitions(text: str) -> set[str]:
    return set(re.findall(r"^PartitionName=(\S+)", text, re.MULTILINE))


def _associations(text: str) -> set[str]:
    wanted = _wanted(text)
    return {
        *(f"qos {name}" for name in wanted.get("qos") or ()),
        *(f"account {name}" for name in wanted.get("accounts") or ()),
        *(
            f"user {name} account {account}"
            for name, accounts in (wanted.get("users") or {}).items()
            for account in accounts
        ),
    }


def _wanted(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def file_of(inputs: Inputs | None, name: str) -> str | None:
    """Return a file of a ConfigMap; None if it is missing or unknown."""
    found = at(inputs or {}, "data", name)
    return found if isinstance(found, str) and found != UNKNOWN_STRING else None


def _guard(inputs: Inputs | None) -> Any:
    found = [one for one in _containers(inputs) if at(one, "name") == GUARD]
    return [sorted(at(one, "env") or [], key=str) for one in found]


def _variable(inputs: Inputs | None, name: str) -> str:
    """Return an environment variable of the pods, "" if it is not set or unknown."""
    for container in _containers(inputs):
        for variable in at(container, "env") or []:
            if at(variable, "name") == name:
                return str(at(variable, "value") or "")
    return ""


def _containers(inputs: Inputs | None) -> Iterator[Any]:
    """Yield the containers of a workload's pods, or of a PodTemplate."""
    template = at(inputs or {}, "spec", "template") or at(inputs or {}, "template")
    for kind in ("initContainers", "containers"):
        found = at(template, "spec", kind)
        yield from found if isinstance(found, list) else ()
