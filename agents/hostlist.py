"""Slurm's hostlist expressions, as `scontrol show hostlist` prints them: `cpu-0,gpu-[0-3,7]`."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

_NUMBERED = re.compile(r"(.*?)(\d+)")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PART = re.compile(r"([^\[\],]*)(?:\[([0-9,-]+)\])?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
MAX_HOSTS = 65_536
"""Maximum number of hosts; Slurm has the same limit for one range (MAX_RANGE, 64 Ki)."""


def compress(names: Iterable[str]) -> str:
    """Return the shortest expression of the names, each once, sorted by prefix and number."""
    plain: set[str] = set()
    numbered: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.add(name)
            continue
        prefix, digits = match.groups()
        # Group numbers with leading zeros by their width. All other numbers are one group.
        padded = digits.startswith("0") and digits != "0"
        numbered[prefix, len(digits) if padded else 0].add(int(digits))
    parts = [(name, 0, name) for name in plain]
    for (prefix, width), numbers in numbered.items():
        ranges = [_span(first, last, width) for first, last in _runs(sorted(numbers))]
        alone = len(ranges) == 1 and "-" not in ranges[0]
        parts.append((prefix, width, prefix + (ranges[0] if alone else f"[{','.join(ranges)}]")))
    return ",".join(text for _, _, text in sorted(parts))


def expand(expression: str) -> tuple[str, ...]:
    """Return the names in the order of the expression. Each part may have at most one bracket.

    Raises `ValueError` with the reason if the expression is invalid.
    """
    names: list[str] = []
    for part in _split(expression):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"'{part}' is not a hostlist; write it in the form 'gpu-[0-3,7]'")
        prefix, ranges = match.groups()
        found = [prefix] if ranges is None else [f"{prefix}{n}" for n in _numbers(ranges)]
        for name in found:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"'{name}' is not a host name; write a hostlist in the form 'gpu-[0-3,7]'"
                )
        names += found
        if len(names) > MAX_HOSTS:
            raise ValueError(f"the hostlist has more than {MAX_HOSTS} hosts; list fewer hosts")
    return tuple(names)


def _split(expression: str) -> list[str]:
    """Split an expression at the commas outside of brackets."""
    return re.split(r",(?![^\[]*\])", expression)


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"'{part}' is not a range of numbers; write it in the form '0-3'")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(f"the range '{part}' is descending; put the smaller number first")
        if int(last) - int(first) >= MAX_HOSTS:
            raise ValueError(
                f"the range '{part}' has more than {MAX_HOSTS} hosts; use a shorter range"
            )
        yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each run of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


def _span(first: int, last: int, width: int) -> str:
    start = f"{first:0{width}d}" if width else str(first)
    end = f"{last:0{width}d}" if width else str(last)
    return start if first == last else f"{start}-{end}"
