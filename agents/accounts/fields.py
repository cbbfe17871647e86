"""Fields of accounts, users and QOSs that the settings can set.

Each field has the same name as in sacctmgr(1). Every value is a text in canonical form, so that
Slurm's values can be compared with the settings. Whole numbers are decimal, times are in seconds,
memory is in MiB, and lists are sorted. All texts are in lower case, like names in sacctmgr. ""
means no limit, or no value.

A limit for several TRES (trackable resources) has one field per TRES, such as `grptres:cpu`,
because Slurm also changes each TRES separately.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum


class Kind(Enum):
    """Format of a field's values."""

    NUMBER = "number"
    FACTOR = "factor"
    SECONDS = "seconds"
    """Time that sacctmgr reads as a number of seconds, but shows as a time such as 00:05:00."""
    TIME = "time"
    TRES = "tres"
    NAMES = "names"
    TEXT = "text"


_LIMITS = {
    "grpjobs": Kind.NUMBER,
    "grpjobsaccrue": Kind.NUMBER,
    "grpsubmitjobs": Kind.NUMBER,
    "grptres": Kind.TRES,
    "grptresmins": Kind.TRES,
    "grptresrunmins": Kind.TRES,
    "grpwall": Kind.TIME,
    "maxtresperjob": Kind.TRES,
    "maxtrespernode": Kind.TRES,
    "maxtresminsperjob": Kind.TRES,
    "maxwall": Kind.TIME,
    "minpriothresh": Kind.NUMBER,
    "priority": Kind.NUMBER,
}
ASSOCIATION: Mapping[str, Kind] = {
    **_LIMITS,
    "defaultqos": Kind.TEXT,
    "fairshare": Kind.TEXT,
    "maxjobs": Kind.NUMBER,
    "maxjobsaccrue": Kind.NUMBER,
    "maxsubmitjobs": Kind.NUMBER,
    "qoslevel": Kind.NAMES,
}
"""Fields of an account, or of a user in an account."""
ACCOUNT: Mapping[str, Kind] = {
    **ASSOCIATION,
    "description": Kind.TEXT,
    "organization": Kind.TEXT,
    "parent": Kind.TEXT,
}
PERSON: Mapping[str, Kind] = {"adminlevel": Kind.TEXT, "defaultaccount": Kind.TEXT}
"""Fields of a user, the same in every account."""
USER: Mapping[str, Kind] = {**ASSOCIATION, **PERSON}
QOS: Mapping[str, Kind] = {
    **_LIMITS,
    "flags": Kind.NAMES,
    "gracetime": Kind.SECONDS,
    "limitfactor": Kind.FACTOR,
    "maxjobsaccrueperaccount": Kind.NUMBER,
    "maxjobsaccrueperuser": Kind.NUMBER,
    "maxjobsperaccount": Kind.NUMBER,
    "maxjobsperuser": Kind.NUMBER,
    "maxsubmitjobsperaccount": Kind.NUMBER,
    "maxsubmitjobsperuser": Kind.NUMBER,
    "maxtresperaccount": Kind.TRES,
    "maxtresperuser": Kind.TRES,
    "maxtresrunminsperaccount": Kind.TRES,
    "maxtresrunminsperuser": Kind.TRES,
    "mintresperjob": Kind.TRES,
    "preempt": Kind.NAMES,
    "preemptexempttime": Kind.TIME,
    "preemptmode": Kind.TEXT,
    "usagefactor": Kind.FACTOR,
    "usagethreshold": Kind.FACTOR,
}
KINDS: Mapping[str, Kind] = {**ACCOUNT, **USER, **QOS}
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "account": {"fairshare": "1", "parent": "root"},
    "user": {"fairshare": "1", "adminlevel": "none"},
    "qos": {"gracetime": "0", "preemptmode": "cluster", "priority": "0", "usagefactor": "1"},
}
"""Values that Slurm shows for unset fields of an account, a user or a QOS. Slurm shows nothing for
other unset fields."""

_UNITS = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
"""MiB in each of sacctmgr's units of memory."""
_AMOUNT = re.compile(r"(\d+)([KMGTP]?)")
_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")


class ValueUnknownError(Exception):
    """sacctmgr shows a value in an unknown format."""


def read(field: str, shown: str) -> dict[str, str]:
    """Parse a column of sacctmgr, and return its fields in canonical form.

    Raises `ValueUnknownError`.
    """
    shown = shown.strip()
    if not shown:
        return {}
    match KINDS[field]:
        case Kind.TRES:
            parts = (part.rpartition("=") for part in shown.split(","))
            return {f"{field}:{name.lower()}": _amount(name, value) for name, _, value in parts}
        case Kind.TIME | Kind.SECONDS:
            return {field: _seconds(shown)}
        case Kind.FACTOR:
            return {field: f"{float(shown):g}"}
        case Kind.NAMES:
            return {field: ",".join(sorted(shown.lower().split(",")))}
        case _:
            return {field: shown.lower()}


def write(kind: str, changes: Mapping[str, str]) -> list[str]:
    """Return `field=value` arguments for sacctmgr. `kind` is account, user or qos."""
    tres: dict[str, list[str]] = {}
    options = []
    for key, value in sorted(changes.items()):
        field, _, resource = key.partition(":")
        if resource:
            tres.setdefault(field, []).append(f"{resource}={value or -1}")
        else:
            options.append(f"{field}={_written(field, value) or _cleared(kind, field)}")
    return [*options, *(f"{field}={','.join(parts)}" for field, parts in sorted(tres.items()))]


def default(kind: str, field: str) -> str:
    return DEFAULTS[kind].get(field, "")


def _written(field: str, value: str) -> str:
    if KINDS[field] is not Kind.TIME or not value:
        return value
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{seconds:02}"


def _cleared(kind: str, field: str) -> str:
    """Return the value that clears a field: -1 for numbers, "" for lists (source: sacctmgr(1))."""
    if given := default(kind, field):
        return given
    unset = KINDS[field] in (Kind.TEXT, Kind.NAMES) and field not in ("defaultqos", "flags")
    return "" if unset else "-1"


def _amount(name: str, value: str) -> str:
    match = _AMOUNT.fullmatch(value)
    if match is None:
        raise ValueUnknownError(
            f"cannot read the limit '{name}={value}' from sacctmgr: expected a number with an "
            "optional unit; correct this limit with sacctmgr, or check that this Slurm "
            "version is supported"
        )
    if name.lower() != "mem":
        # Slurm uses units only for memory.
        if match[2]:
            raise ValueUnknownError(
                f"cannot read the limit '{name}={value}' from sacctmgr: expected a number "
                "without a unit; correct this limit with sacctmgr, or check that this Slurm "
                "version is supported"
            )
        return match[1]
    return str(round(int(match[1]) * _UNITS[match[2]]))


def _seconds(shown: str) -> str:
    match = _TIME.fullmatch(shown)
    if match is None:
        raise ValueUnknownError(
            f"cannot read the time limit '{shown}' from sacctmgr: expected a time such as "
            "1-00:00:00; correct this limit with sacctmgr, or check that this Slurm version is "
            "supported"
        )
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return str(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def with_defaults(kind: str, fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the fields whose values differ from their defaults."""
    return {field: value for field, value in fields if value != default(kind, field)}
