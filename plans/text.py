"""Show a preview on a terminal. In a pipe, the text has no colours, and one line for each fact."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.display import COLOURS, SYMBOLS, change_lines
from plans.costs import Difference, differences, on_demand, total
from plans.notices import notices
from plans.protection import refusals
from plans.reading import ORDER, Preview, Step, rolls_pods

_HEAD: Final = "bold"
_ALARM: Final = "bold red"
_MOST_ALIKE: Final = 5
"""Maximum number of lines for resources of one kind that have no changes to show."""


def show(preview: Preview, stack: str, console: Console) -> None:
    """Print the resources, what users notice, the costs, warnings, refusals and failures.

    The most important lines come last: after a long preview, a terminal shows only the end.
    """
    for _, alike in groupby(preview.shown(), lambda step: (step.op, step.kind)):
        for lines in _resources([*alike]):
            console.print(Text("\n").join(lines), soft_wrap=True)
    if jobs := preview.jobs():
        console.print(
            f"Kubernetes Jobs that run again: {', '.join(jobs)}", soft_wrap=True, highlight=False
        )
    _section("What users and jobs notice", notices(preview), console)
    _costs(differences(preview), on_demand(preview), console)
    _section("Warnings", preview.warnings, console)
    _section("Refused", refusals(preview), console, _ALARM)
    if preview.errors:
        _section("Printed before the failure", preview.output, console)
    _section("Failed", preview.errors, console, _ALARM)
    if not preview.errors:
        console.print(Text(f"{stack}: {_summary(preview)}", _HEAD), soft_wrap=True)


def _resources(alike: Sequence[Step]) -> Iterator[Iterable[Text]]:
    """Yield the lines of each resource. The resources have the same kind and operation."""
    plain = [step for step in alike if not step.changes]
    if len(plain) > _MOST_ALIKE:
        op, names = plain[0].op, ", ".join(step.name for step in plain)
        what = f"{len(plain)} {plain[0].kind} resources: {names}"
        yield [Text(f"{SYMBOLS[op]:>2} {what}", COLOURS[op])]
        alike = [step for step in alike if step.changes]
    yield from map(_resource, alike)


def _resource(step: Step) -> Iterator[Text]:
    rolled = ", its pods are replaced" if rolls_pods(step) else ""
    yield Text(f"{SYMBOLS[step.op]:>2} {step.kind} {step.name}{rolled}", COLOURS[step.op])
    for line in change_lines(step.changes):
        yield Text(f"     {line}")


def _section(title: str, lines: Sequence[str], console: Console, style: str = _HEAD) -> None:
    if lines:
        console.print(Text(f"{title}:", style))
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _costs(found: Sequence[Difference], lines: Sequence[str], console: Console) -> None:
    if found or lines:
        console.print(Text("Costs:", _HEAD))
    if found:
        console.print(_cost_table(found))
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _cost_table(found: Sequence[Difference]) -> Table:
    table = Table("", "", "before", "after", "", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found:
        each = next((side.each for side in (one.after, one.before) if side), "")
        table.add_row(f"  {one.what}", one.name, total(one.before), total(one.after), each)
    return table


def _summary(preview: Preview) -> str:
    counts = Counter(step.op for step in preview.shown())
    parts = [f"{SYMBOLS[op]} {counts[op]} to {op.value}" for op in ORDER if counts[op]]
    return ", ".join([*parts, f"{preview.unchanged} unchanged"])
