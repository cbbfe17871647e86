"""Progress of each repair, so that a restarted reconciler can continue the repairs.

The memory is the only entry of a ConfigMap, and is read and written as a whole. The ConfigMap's
`resourceVersion` lets only one of two reconcilers continue. The memory outlives pods and machines,
which repairs delete.

The reconciler writes the memory before all actions, so that every step is recorded. It writes the
memory again after the actions, so that the next pass repeats only steps that were not carried out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

Key = tuple[str, str]
"""Node, and the cause of its problem."""


@dataclass(frozen=True)
class Climb:
    """Position of a node on the ladder of a cause."""

    rung: int
    """Index of the current step. If the index is after the last step, a person is needed."""
    at: int
    """Unix time at which the step began."""
    done: bool = False
    """Whether the step has been carried out."""
    target: str = ""
    """ID of the object that the step acts on: a pod, a boot or a machine."""
    gone: int | None = None
    """Unix time at which the cause disappeared, or None while the cause exists."""


Memory = Mapping[Key, Climb]


class MemoryUnknownError(Exception):
    """The memory in the ConfigMap is invalid."""


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
            f"cannot read the progress of repairs ({error!r}); delete the key 'memory' of the "
            "ConfigMap 'reconciler-memory' to start repairs anew"
        ) from error
