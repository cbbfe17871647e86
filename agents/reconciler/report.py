"""Report a pass as lines for people, as JSON, and as an exit code."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from agents.reconciler.plan import Plan

IN_SERVICE, OUT, UNASKED, PERSON = range(4)
"""Exit codes: see `agents.reconciler.__main__`."""
MOST = 50
"""Maximum number of lines about nodes in a report for people."""


def code(made: Plan) -> int:
    if any(out.needs_person for out in made.out):
        return PERSON
    return OUT if made.out or made.in_service < made.wanted else IN_SERVICE


def text(made: Plan) -> str:
    """Return a line with a summary, and one line for each problem of a node."""
    lines = [
        f"{made.in_service} of {made.wanted} nodes are in service",
        *(
            f"nodeset {name}: nodes that still have old settings: {old}"
            for name, old in made.outdated.items()
        ),
        *map(str, made.out[:MOST]),
    ]
    if len(made.out) > MOST:
        lines.append(f"and {len(made.out) - MOST} more problems of nodes, which --json shows")
    return "\n".join(lines)


def as_json(made: Plan, notes: Sequence[str] = ()) -> str:
    return json.dumps(
        {
            "code": code(made),
            "wanted": made.wanted,
            "in_service": made.in_service,
            "outdated": dict(made.outdated),
            "out": [asdict(out) for out in made.out],
            "actions": [
                {"action": type(action).__name__.lower(), "text": str(action)}
                for action in made.actions
            ],
            "notes": list(notes),
        }
    )
