"""Facts that a reader of the preview needs about a step, derived from the step's inputs."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from components.conventions import (
    ACCOUNTS_FILE,
    ANNOTATION_NODES,
    ANNOTATION_ROLL,
    GUARD,
    NODE_CHECKS,
    NODE_OPTIONS,
)
from engine.paths import parse_path
from engine.planning import Op
from engine.values import UNKNOWN_STRING
from plans.costs import at
from plans.keys import keys_in_use
from plans.reading import Preview, Step, rolls_pods

Inputs = Mapping[str, Any]


def replicas(inputs: Inputs | None) -> int | None:
    """Return the number of pods, or the maximum of nodes on demand, or None if it is unknown."""
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
    """Return whether the step ends existing pods of a workload."""
    return rolls_pods(step) or shrinks(step) or step.op in (Op.REPLACE, Op.DELETE)


def is_static(step: Step) -> bool:
    """Return whether the nodeset is static: slurm.conf lists its nodes.

    The nodes of other nodesets describe themselves to slurmctld, with the variable NODE_CONF.
    """
    return bool(_variable(step.old, "DRAIN_GRACE")) and not _variable(step.old, "NODE_CONF")


def grace(step: Step) -> str:
    """Return the name and the seconds of the drain_grace that applies to existing pods.

    A leaving node waits at most this long for its jobs.
    """
    which, seconds = _grace(step, "drain_grace")
    return f"{which} ({seconds} s)" if seconds else which


def session_grace(step: Step) -> str:
    """Return the seconds after which a leaving login node ends its sessions."""
    which, seconds = _grace(step, "login.drain_grace")
    return f"{seconds} s ({which})" if seconds else which


def _grace(step: Step, key: str) -> tuple[str, str]:
    """Return the name of the setting that applies to existing pods, and its seconds.

    The seconds are "" if they are unknown.
    """
    old, new = (_variable(inputs, "DRAIN_GRACE") for inputs in (step.old, step.new))
    return key if not old or new in (old, "") else f"the old {key}", old


def share(step: Step) -> str:
    """Describe how many nodes an update of a nodeset takes out of service at the same time."""
    roll = _parsed(at(step.new or {}, "metadata", "annotations", ANNOTATION_ROLL))
    if roll.get("in_maintenance"):
        return "only in a maintenance reservation of Slurm"
    if roll.get("share"):
        return f"at most {100 * roll['share']:g} % of them (or one node) at the same time"
    return "only a part of them at the same time (setting reconciler.share)"


def changes_guard(step: Step) -> bool:
    """Return whether the rules of the pods' packet filter change. Ignore changes of its image."""
    is_removed = step.op is Op.DELETE
    return not is_removed and _guard(step.old) != _guard(step.new) and loses_pods(step)


def changes_data(step: Step) -> bool:
    """Return whether the contents of a Secret or ConfigMap change. Ignore its metadata."""
    paths = (parse_path(change.path) for change in step.changes)
    return step.op is Op.DELETE or any(path[:1] in (("data",), ("stringData",)) for path in paths)


def removed_keys_in_use(preview: Preview) -> list[int]:
    """Return the times of removed keys that pods use now, or start to use within three minutes."""
    secret = next((step for step in preview.steps if step.name == "auth-secret"), None)
    removed = (step.name for step in preview.steps if step.op is Op.DELETE)
    return keys_in_use(removed, secret.sources if secret else ())


def removed_partitions(step: Step) -> list[str]:
    """Return the partitions that a new slurm.conf no longer has."""
    return _gone(step, "slurm.conf", _partitions)


def removed_users(step: Step) -> list[str]:
    """Return the users that a new passwd(5) no longer has."""
    return _gone(step, "passwd", lambda text: set(_uids(text)))


def changed_uids(step: Step) -> list[str]:
    """Return the users whose uid changes."""
    before, after = _uids_of(step)
    return [name for name, uid in after.items() if before.get(name, uid) != uid]


def reused_uids(step: Step) -> list[str]:
    """Return the users who get the uid of another user, with this uid and its former user."""
    before, after = _uids_of(step)
    owners = {uid: name for name, uid in before.items()}
    return [
        f"{name} (uid {uid}, before: uid of {owners[uid]})"
        for name, uid in after.items()
        if owners.get(uid, name) != name
    ]


def _uids_of(step: Step) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the uids before and after a step, by user.

    Both are empty if one of the passwd(5) files is missing or unknown.
    """
    before, after = (file_of(inputs, "passwd") for inputs in (step.old, step.new))
    return ({}, {}) if before is None or after is None else (_uids(before), _uids(after))


def _uids(passwd: str) -> dict[str, str]:
    """Return the uid of each user, by name."""
    lines = (line.split(":") for line in _lines(passwd))
    return {fields[0]: fields[2] for fields in lines}


_STEPS: Final = {"steps": "of one job", "node_steps": "of all jobs"}
"""Options with the maximum of simultaneous steps on a node, which depends on the node's memory."""


def changes_isolation(step: Step) -> bool:
    """Return whether a nodeset's isolation changes. Ignore the limits of simultaneous steps."""
    before, after = (
        [line for line in _lines(file_of(inputs, NODE_OPTIONS) or "") if not _is_of_steps(line)]
        for inputs in (step.old, step.new)
    )
    return step.op is Op.UPDATE and before != after


def changed_steps(step: Step) -> list[str]:
    """Return the changed limits of simultaneous steps, each with the old limit."""
    before, after = (
        dict(
            line.split("=", 1)
            for line in _lines(file_of(inputs, NODE_OPTIONS) or "")
            if _is_of_steps(line)
        )
        for inputs in (step.old, step.new)
    )
    return [
        f"{after[key]} steps {whose} (before: {before[key]})"
        for key, whose in _STEPS.items()
        if key in before and key in after and before[key] != after[key]
    ]


def _is_of_steps(line: str) -> bool:
    name, is_option, _ = line.partition("=")
    return bool(is_option) and name in _STEPS


def changes_checks(step: Step) -> bool:
    """Return whether the health checks of a nodeset change.

    A nodeset that gets checks for the first time also counts as changed.
    """
    before, after = (_checks(inputs) for inputs in (step.old, step.new))
    return step.op is Op.UPDATE and before != after and not ends_checks(step)


def ends_checks(step: Step) -> bool:
    """Return whether a nodeset's nodes no longer run health checks."""
    before, after = (_checks(inputs) for inputs in (step.old, step.new))
    files = at(step.new or {}, "data")
    is_known = isinstance(files, Mapping) and files.get(NODE_CHECKS) != UNKNOWN_STRING
    return step.op is Op.UPDATE and is_known and bool(before) and not after


def _checks(inputs: Inputs | None) -> Mapping[str, Any]:
    """Return the limits of each check. Leave out the jail's generation, which is not a limit."""
    found = dict(_parsed(file_of(inputs, NODE_CHECKS)))
    if isinstance(found.get("jail"), Mapping):
        found["jail"] = {**found["jail"], "generation": None}
    return found


def changed_refresh(step: Step) -> str:
    """Return the old and the new `jail.refresh`, or "" if it does not change."""
    before, after = (_variable(inputs, "JAIL_REFRESH") for inputs in (step.old, step.new))
    return f"{before} to {after}" if before and after and before != after else ""


def mount_points(step: Step, *, added: bool) -> list[str]:
    """Return the paths in the jail at which pods start to mount a volume.

    If `added` is false, return the paths at which pods no longer mount a volume.
    """
    before, after = (
        set(_variable(inputs, "JAIL_SUBMOUNTS").split()) for inputs in (step.old, step.new)
    )
    return sorted(after - before if added else before - after)


def changes_image(step: Step) -> bool:
    """Return whether the pods' images change. Ignore a change of only the registry."""
    before, after = (
        [str(at(one, "image")).rpartition("/")[2] for one in _containers(inputs)]
        for inputs in (step.old, step.new)
    )
    return bool(before and after) and UNKNOWN_STRING not in after and before != after


def changed_limits(step: Step) -> list[str]:
    """Return the changed fields of QOS, accounts and users that exist before and after the step.

    Return an empty list if more than `_FEW` fields change.
    """
    wanted = [_parsed(file_of(inputs, ACCOUNTS_FILE)) for inputs in (step.old, step.new)]
    before, after = ({**_fields(side), **_fields_in_partitions(side)} for side in wanted)
    changed = [
        f"{name} {field} from {_amount(field, old)} to {_amount(field, new)}"
        for name in sorted(before.keys() & after.keys())
        for field in sorted({*before[name], *after[name]})
        if (old := before[name].get(field, "")) != (new := after[name].get(field, ""))
    ]
    return changed if len(changed) <= _FEW else []


_FEW: Final = 5
_SECONDS: Final = ("gracetime", "grpwall", "maxwall", "preemptexempttime")
"""Fields with seconds (agents/accounts/fields.py); amounts of memory are in MiB."""


def _amount(field: str, value: str) -> str:
    if not value:
        return "none"
    if field in _SECONDS:
        return f"{value} s"
    return f"{value} MiB" if field.endswith(":mem") and "mins" not in field else value


def removed_associations(step: Step, *, with_jobs: bool) -> list[str]:
    """Return the accounts, users in accounts, and QOS that Slurm removes.

    If `with_jobs` is true, return only entries whose jobs Slurm cancels. Otherwise, return only
    entries that must have no jobs. The names have the form of `accounting.remove_with_jobs`. A
    removed account includes its users.
    """
    gone = _gone(step, ACCOUNTS_FILE, _associations)
    wanted = _parsed(file_of(step.new, ACCOUNTS_FILE))
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
    return set(_fields(_parsed(text)))


def _fields(wanted: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return the fields of each QOS, account, and user in an account."""
    return {
        **{f"qos {name}": fields for name, fields in (wanted.get("qos") or {}).items()},
        **{f"account {name}": fields for name, fields in (wanted.get("accounts") or {}).items()},
        **{
            f"user {name} account {account}": fields
            for name, accounts in (wanted.get("users") or {}).items()
            for account, fields in accounts.items()
        },
    }


def _fields_in_partitions(wanted: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    return {
        f"user {name} account {account} partition {partition}": fields
        for name, accounts in (wanted.get("partitions") or {}).items()
        for account, partitions in accounts.items()
        for partition, fields in partitions.items()
    }


def _parsed(text: Any) -> Mapping[str, Any]:
    """Return the object in a JSON text; an empty one if the text is missing or is not an object."""
    try:
        found = json.loads(text or "")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def file_of(inputs: Inputs | None, name: str) -> str | None:
    """Return a file of a ConfigMap, or None if it is missing or unknown."""
    found = at(inputs or {}, "data", name)
    return found if isinstance(found, str) and found != UNKNOWN_STRING else None


def _guard(inputs: Inputs | None) -> Any:
    found = [one for one in _containers(inputs) if at(one, "name") == GUARD]
    return [sorted(at(one, "env") or [], key=str) for one in found]


def _variable(inputs: Inputs | None, name: str) -> str:
    """Return the value of an environment variable of the pods, or "" if it is unset or unknown."""
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
