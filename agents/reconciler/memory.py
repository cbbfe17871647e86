"""How far each repair has come: what a reconciler that starts again must know, and no more.

It stands in a ConfigMap of its own, as one object that is read and written whole: its
`resourceVersion` lets only one of two reconcilers go on, and it outlives pods and machines, which
the repairs themselves delete. It is written before anything is done, so that no step is taken that
is not remembered; and afterwards, so that a step that was not carried out is taken again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

Key = tuple[str, str]
"""A node and the cause of its trouble."""


@dataclass(frozen=True)
class Climb:
    """Where a node stands on the ladder of a cause."""

    rung: int
    """The step that is taken now; the one past the last is that a person is told."""
    at: int
    """Unix time at which it was decided on."""
    done: bool = False
    """Whether it has been carried out."""
    target: str = ""
    """What it is carried out on: the id of a pod, a boot or a machine."""
    gone: int | None = None
    """Unix time since which the cause is gone."""


Memory = Mapping[Key, Climb]


class MemoryUnknownError(Exception):
    """What stands there is no memory; nothing is to be concluded from it."""


def dumps(memory: Memory) -> str:
    content = [
        {"node": node, "cause": cause, **vars(climb)}
        for (node, cause), climb in sorted(memory.items())
    ]
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in content)


def loads(text: str) -> dict[Key, Climb]:
    """Raises `MemoryUnknownError`."""
    try:
        lines = [json.loads(line) for line in text.splitlines()]
        return {(line.pop("node"), line.pop("cause")): Climb(**line) for line in lines}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MemoryUnknownError(
            f"what is remembered of repairs cannot be read ({error!r}); delete the entry of the "
            "ConfigMap that holds it, and repairs begin again"
        ) from error
