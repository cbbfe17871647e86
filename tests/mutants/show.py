"""Output for the user: a line for each row, and a table at the end."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.mutants.fault import AREAS
from tests.mutants.judge import Verdict
from tests.mutants.run import Result


def say(text: str) -> None:
    """Print progress to stderr, like all commands of this repository."""
    print(text, file=sys.stderr, flush=True)


def line(result: Result) -> str:
    fault = result.fault
    text = f"{result.verdict:8}  {fault.area:10}  {fault.name}  ({result.seconds:.0f} s)"
    return text if result.verdict is Verdict.CAUGHT else f"{text}: {result.why}"


def show(results: Sequence[Result]) -> None:
    """Print the table by area, then the faults that were not caught."""
    table = Table("area", "faults", "caught", "survivors", "errors")
    for area in AREAS:
        if own := [result for result in results if result.fault.area == area]:
            table.add_row(area, *_counts(own))
    table.add_section()
    table.add_row("all", *_counts(results))
    console = Console(highlight=False)
    console.print(table)
    for result in results:
        if result.verdict is not Verdict.CAUGHT:
            fault, why = result.fault, result.why
            text = f"{result.verdict}: {fault.file}: {fault.name}\n    {why}"
            console.print(text, markup=False, soft_wrap=True)
            for output in result.output.splitlines():
                console.print(f"    | {output}", markup=False, soft_wrap=True)


def _counts(results: Iterable[Result]) -> list[str]:
    verdicts = [result.verdict for result in results]
    return [str(len(verdicts)), *(str(verdicts.count(verdict)) for verdict in Verdict)]


def as_json(results: Sequence[Result]) -> str:
    rows: list[dict[str, Any]] = [
        {
            "name": result.fault.name,
            "area": result.fault.area,
            "tier": result.fault.tier,
            "file": result.fault.file,
            "tests": result.fault.tests,
            "verdict": result.verdict,
            "why": result.why,
            "seconds": round(result.seconds, 1),
        }
        for result in results
    ]
    return json.dumps(rows, indent=1)
