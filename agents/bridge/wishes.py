"""Read the annotations with which users describe the Slurm job of their pods.

Slinky's slurm-bridge defines the names and formats (its docs/workload.md, version 1.2). The prefix
`slurmstack.dev/` has the same names.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agents.bridge import quantities
from agents.labels import DOMAIN

PREFIXES: Final = ("slurmjob.slinky.slurm.net/", f"{DOMAIN}/")
"""Prefixes of the annotations. If both occur with the same name, the last one applies."""


MOST_CPUS: Final = 65_533
"""Largest number of CPUs of a task in Slurm (16 bits, without NO_VAL16 and INFINITE16)."""
_MOST: Final = 2**32 - 3
"""Largest number in Slurm (32 bits, without NO_VAL and INFINITE)."""
_DIGITS: Final = 10


class WishError(Exception):
    """An annotation is unusable. The message is one line: name, value, expectation, remedy."""


@dataclass(frozen=True)
class Wishes:
    """What a user wants of a job. None means Slurm's default, or what the pods request."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    wckey: str | None = None
    reservation: str | None = None
    licenses: str | None = None
    constraints: str | None = None
    gres: str | None = None
    """Additional GRES of each node, such as `gpu:h100:2`."""
    user: str | None = None
    """Name or uid of the Slurm user."""
    group: str | None = None
    """Name or gid of the job's group."""
    name: str | None = None
    time_limit: int | None = None
    """Minutes."""
    priority: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    cpus_per_task: int | None = None
    memory_per_node: int | None = None
    """MiB."""
    exclusive: bool | None = None
    """Whether the job gets whole nodes."""


def _text(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("expected a text in one line")
    return value.strip()


def _number(value: str) -> int:
    if not value.isascii() or not value.isdecimal():
        raise ValueError("expected a whole number, such as '5'")
    if len(value) > _DIGITS or int(value) > _MOST:
        raise ValueError(f"expected at most {_MOST}")
    return int(value)


def _positive(value: str) -> int:
    number = _number(value)
    if not number:
        raise ValueError("expected a number of at least 1")
    return number


def _truth(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError("expected 'true' or 'false'")
    return value == "true"


def _cpus(value: str) -> int:
    cpus = quantities.whole(quantities.parse(value))
    if cpus > MOST_CPUS:
        raise ValueError(f"expected at most {MOST_CPUS}")
    return max(1, cpus)


def _constraint(value: str) -> str:
    depth = 0
    for character in value:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
    if depth:
        # The bridge adds a feature outside of parentheses.
        raise ValueError("expected a closing parenthesis for each opening one")
    return _text(value)


def _memory(value: str) -> int:
    return quantities.mebibytes(quantities.parse(value))


_READERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "account": ("account", _text),
    "constraints": ("constraints", _constraint),
    "cpu-per-task": ("cpus_per_task", _cpus),
    "exclusive": ("exclusive", _truth),
    "gres": ("gres", _text),
    "group-id": ("group", _text),
    "job-name": ("name", _text),
    "licenses": ("licenses", _text),
    "max-nodes": ("max_nodes", _positive),
    "mem-per-node": ("memory_per_node", _memory),
    "min-nodes": ("min_nodes", _positive),
    "partition": ("partition", _text),
    "priority": ("priority", _number),
    "qos": ("qos", _text),
    "reservation": ("reservation", _text),
    "timelimit": ("time_limit", _positive),
    "user-id": ("user", _text),
    "wckey": ("wckey", _text),
}
"""For each name of an annotation, the field of `Wishes` and the function that reads the value."""
NAMES: Final = tuple(sorted(_READERS))


def read(annotations: Mapping[str, str]) -> Wishes:
    """Return the wishes. Other annotations do not count. Raises `WishError`."""
    found: dict[str, Any] = {}
    for prefix in PREFIXES:
        for key, value in sorted(annotations.items()):
            name = key.removeprefix(prefix)
            if name == key:
                continue
            if name in _READERS:
                field, reader = _READERS[name]
                found[field] = _value(key, value, reader)
            elif prefix == PREFIXES[0]:
                # The other prefix also has annotations with other purposes.
                raise WishError(f"annotation '{key}': unknown; {_hint(name)}")
    return Wishes(**found)


def _value(key: str, value: str, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(value)
    except ValueError as error:
        said = str(error)
        shown = said if said.startswith(f"'{value}'") else f"'{value}': {said}"
        raise WishError(f"annotation '{key}': {shown}; correct the annotation") from None


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, NAMES, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known names: {', '.join(NAMES)}"
