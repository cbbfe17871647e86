"""Progress of each repair: only what a restarted reconciler must know.

The memory is one object in its own ConfigMap, read and written as a whole. Its `resourceVersion`
lets only one of two reconcilers continue. It outlives pods and machines, which repairs delete.

The reconciler writes it before all actions, so that it takes no step that is not recorded. It
writes it again afterwards, so that it repeats a step that was not carried out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

Key = tuple[str, str]
"""A node and the cause of its trouble."""


@dataclass(frozen=True)
class Climb:
    """Position of a node on the ladder of a cause."""

    rung: int
    """Index of the current step; the one past the last means that a person is needed."""
    at: int
    """Unix time of the decision."""
    done: bool = False
    """Whether it has been carried out."""
    target: str = ""
    """ID of the object that it acts on: a pod, a boot or a machine."""
    gone: int | None = None
    """Unix time since which the cause is gone."""


Memory = Mapping[Key, Climb]


class MemoryUnknownError(Exception):
    """The ConfigMap holds no valid memory, so no conclusion is possible."""


def dumps(memory: Memory) -> str:
    content = [
        {"node": node, "cause": cause, **vars(climb)}
        for (node, cause), climb in sorted(memory.items())
    ]
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in content)


def loads(text: str) -> dict[Key, Climb]:
    """Parse a memory. Raises `MemoryUnknownError` if it is invalid."""
    try:
        lines = [json.loads(line) for line in text.splitlines()]
        return {(line.pop("node"), line.pop("cause")): Climb(**line) for line in lines}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MemoryUnknownError(
            f"cannot read the progress of repairs ({error!r}); delete the key memory of the "
            "ConfigMap reconciler-memory to start repairs anew"
        ) from error
