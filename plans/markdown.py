"""Render a preview as a comment on a pull request."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from engine.changes import Change
from engine.display import limited
from engine.planning import Op
from plans.costs import Difference, amount, differences, on_demand, total
from plans.notices import notices
from plans.protection import refusals
from plans.reading import ORDER, Preview, Step, rolls_pods

LIMIT: Final = 65_536
"""GitHub's limit for a comment, in characters. `render` applies it to bytes, which is safe, because
a text has at least as many bytes as characters."""
_MOST_CHANGES: Final = 12
"""Maximum number of properties to show for one resource."""
_DONE: Final = {
    Op.REPLACE: "replaced",
    Op.DELETE: "deleted",
    Op.UPDATE: "updated",
    Op.CREATE: "created",
}


def marker(stack: str) -> str:
    """Return the comment's invisible first line, by which a later run finds the comment."""
    return f"<!-- slurmstack preview of {stack} -->"


def render(preview: Preview, stack: str, limit: int = LIMIT) -> str:
    """Render the comment with at most `limit` bytes.

    If the comment is cut, its last line says how to see everything. The comment shows names of
    resources and values of their inputs, but no secret in plain text.
    """
    head = "\n".join(_head(preview, stack))
    lines = _cut([*_details(preview)], limit - _bytes(head), stack)
    return "\n".join([head, *lines])


def _head(preview: Preview, stack: str) -> Iterator[str]:
    yield marker(stack)
    yield f"### Preview of {code(stack)}"
    yield ""
    yield _summary(preview)
    yield from _alarm("Refused", refusals(preview))
    yield from _alarm("Failed", preview.errors)
    yield from _alarm("Users", notices(preview))
    yield from _costs(differences(preview), on_demand(preview))
    yield from _kinds(preview.shown())


def _summary(preview: Preview) -> str:
    counts = Counter(step.op for step in preview.shown())
    parts = [
        f"**{counts[op]} {_DONE[op]}**" if op is Op.REPLACE else f"{counts[op]} {_DONE[op]}"
        for op in ORDER
        if counts[op]
    ]
    if jobs := preview.jobs():
        parts.append(f"{len(jobs)} Kubernetes Jobs of the stack run again")
    nothing = "The preview did not finish" if preview.errors else "Nothing changes"
    changed = ", ".join(parts) if parts else nothing
    return f"{changed}; {preview.unchanged} unchanged."


_MOST_ALARMS: Final = 10
_ALARM_WIDTH: Final = 400


def _alarm(word: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
    for line in lines[:_MOST_ALARMS]:
        yield f"> **{word}**: {code(_shortened(line))}"
        yield ">"
    if len(lines) > _MOST_ALARMS:
        yield f"> … and {len(lines) - _MOST_ALARMS} more lines marked **{word}**"


def _shortened(line: str) -> str:
    return line if len(line) <= _ALARM_WIDTH else f"{line[: _ALARM_WIDTH - 1]}…"


# --- Costs ---------------------------------------------------------------------------------------


_MOST_COSTS: Final = 100


def _costs(found: Sequence[Difference], lines: Sequence[str]) -> Iterator[str]:
    if found or lines:
        yield from ("", "#### Costs")
    if found:
        yield from _cost_table(found)
    if lines:
        yield ""
    yield from (f"- {code(_shortened(line))}" for line in lines)


def _cost_table(found: Sequence[Difference]) -> Iterator[str]:
    yield from ("", "| what | name | before | after | |", "|---|---|--:|--:|---|")
    for one in found[:_MOST_COSTS]:
        yield _cost_row(one)
    if len(found) > _MOST_COSTS:
        yield f"| … | {len(found) - _MOST_COSTS} more | | | |"


def _cost_row(one: Difference) -> str:
    more, sides = one.more, [side for side in (one.before, one.after) if side]
    sign = f"**{'+' if more > 0 else '−'}{amount(abs(more), sides[-1].unit)}**" if more else ""
    each = " → ".join(code(text) for text in dict.fromkeys(side.each for side in sides) if text)
    cells = (one.what, code(one.name), total(one.before), total(one.after), f"{sign} {each}")
    plain = (cell.strip().replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(plain)} |"


# --- Resources -----------------------------------------------------------------------------------


def _kinds(steps: Sequence[Step]) -> Iterator[str]:
    if not steps:
        return
    yield from ("", "#### Changes", "")
    yield f"| kind | {' | '.join(_DONE[op] for op in ORDER)} |"
    yield f"|---|{'--:|' * len(ORDER)}"
    counts = Counter((step.kind, step.op) for step in steps)
    for kind in sorted({step.kind for step in steps}):
        cells = [str(counts[kind, op]) if counts[kind, op] else "" for op in ORDER]
        if cells[0]:
            cells[0] = f"**{cells[0]}**"
        yield f"| {kind} | {' | '.join(cells)} |"


def _details(preview: Preview) -> Iterator[str]:
    """Yield one text per resource. The comment is cut only between these texts."""
    for step in preview.shown():
        yield "\n".join(_resource(step))
    if jobs := preview.jobs():
        yield f"- Kubernetes Jobs that run again: {', '.join(map(code, jobs))}"


def _resource(step: Step) -> Iterator[str]:
    line = f"{step.kind} {code(step.name)} {_DONE[step.op]}"
    line = f"**{line}**" if step.op is Op.REPLACE else line
    yield f"- {line}{', its pods are replaced' if rolls_pods(step) else ''}"
    for change in step.changes[:_MOST_CHANGES]:
        yield f"  - {_change(change)}"
        yield from (f"    - {code(line)}" for line in limited(change.lines))
    if len(step.changes) > _MOST_CHANGES:
        yield f"  - … {len(step.changes) - _MOST_CHANGES} more"


def _change(change: Change) -> str:
    why = " (forces replacement)" if change.replaces else ""
    place = code(change.place or change.path)
    if change.lines:
        return f"{place}:{why}"
    if change.old == change.new:  # a secret, or a value that only the cluster knows
        return f"{place}{why}"
    if change.old is None:
        return f"{place}: + {code(str(change.new))}{why}"
    if change.new is None:
        return f"{place}: − {code(change.old)}{why}"
    return f"{place}: {code(change.old)} → {code(change.new)}{why}"


def _cut(lines: Sequence[str], room: int, stack: str) -> list[str]:
    """Return as many lines as fit into `room` bytes, then one line about the lines left out."""
    if sum(map(_bytes, lines)) + 2 <= room:
        return ["", *lines] if lines else []
    kept: list[str] = [""]
    for index, line in enumerate(lines):
        rest = (
            f"\n… and {len(lines) - index} more resources, which do not fit here:"
            f" `make preview STACK={stack} ARGS=--markdown` shows all"
        )
        if sum(map(_bytes, (*kept, line))) + 2 * len(rest) > room:
            return [*kept, rest]
        kept.append(line)
    return kept


def _bytes(line: str) -> int:
    """Return the length in bytes, including the line break."""
    return len(line.encode()) + 1


def code(text: str) -> str:
    """Format text as code, so that Markdown, HTML and mentions in it have no effect."""
    plain = " ".join(text.encode(errors="replace").decode().split())
    fence = "`" * (max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") or not plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}"
