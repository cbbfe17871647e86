"""Measured figures, their targets and their output."""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured value, in seconds unless the name has another unit."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def wanted(self) -> str:
        """The target in words; empty without a target."""
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return "" if self.at_least is None else f"at least {self.at_least:g}"

    @property
    def verdict(self) -> str:
        """`met` if the value meets its target, otherwise `missed`; empty without a target."""
        if not self.wanted:
            return ""
        too_much = self.at_most is not None and self.value > self.at_most
        too_little = self.at_least is not None and self.value < self.at_least
        return "missed" if too_much or too_little else "met"


@dataclass(frozen=True)
class Figures:
    """Measured figures in order. Each figure is printed as soon as it is added."""

    found: list[Figure] = field(default_factory=list)

    def add(
        self,
        name: str,
        value: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        figure = Figure(name, value, at_most, at_least)
        self.found.append(figure)
        say(f"  {line(figure)}")

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.found)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def seconds(work: Callable[[], object]) -> float:
    """Return the duration in seconds."""
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def take_turns(ways: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, list[int]]:
    """Measure all variants in random order, and return the times of each."""
    times: dict[str, list[int]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in random.sample(list(ways), len(ways)):
            times[way].append(ways[way]())
    return times


def line(figure: Figure) -> str:
    target = f" (target: {figure.wanted}; {figure.verdict})" if figure.wanted else ""
    return f"{figure.name}: {figure.value:.2f}{target}"


def show(figures: Figures) -> None:
    """Print a table on a terminal, or plain lines in a pipe."""
    console = Console()
    if not console.is_terminal:
        print("\n".join(map(line, figures)))
        return
    table = Table("figure", "value", "target", "")
    for figure in figures:
        table.add_row(figure.name, f"{figure.value:.2f}", figure.wanted, figure.verdict)
    console.print(table)


def as_json(figures: Figures) -> str:
    return json.dumps(
        [
            {"name": f.name, "value": f.value, "wanted": f.wanted, "verdict": f.verdict}
            for f in figures
        ]
    )
