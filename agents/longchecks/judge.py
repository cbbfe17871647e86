"""Whether a value is good: held against a threshold, and against what the node has shown before."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Verdict(StrEnum):
    """What a measurement says of a node."""

    GOOD = "good"
    BAD = "bad"
    UNJUDGED = "unjudged"
    """There is a value, and nothing yet to hold it against: neither drains nor lifts."""
    UNKNOWN = "unknown"
    """There is no value: neither drains nor lifts."""


@dataclass(frozen=True)
class Rule:
    """What a check's values are held against."""

    unit: str
    higher_is_better: bool = True
    threshold: float | None = None
    """The least that is good, or the most where lower is better; None for no threshold."""
    fall: float = 0.15
    """Share of the usual value by which one may be worse."""
    history: int = 20
    """Newest values that make up what is usual."""
    least: int = 5
    """Values that there must be, before anything is usual."""


def judge(value: float, history: Sequence[float], rule: Rule) -> tuple[Verdict, str]:
    """The verdict, and what was measured and wanted. `history` has the oldest first.

    A history of zeros, as of faults that were counted, has no share that one could fall by.
    """
    measured = f"{_shown(value)} {rule.unit}"
    if rule.threshold is not None and _is_worse(value, rule.threshold, rule):
        wanted = "at least" if rule.higher_is_better else "at most"
        return Verdict.BAD, f"{measured}, wanted {wanted} {_shown(rule.threshold)}"
    recent = history[-rule.history :]
    usual = median(recent) if len(recent) >= rule.least else 0.0
    if usual > 0:
        share = 1 - rule.fall if rule.higher_is_better else 1 + rule.fall
        if _is_worse(value, usual * share, rule):
            word = "less" if rule.higher_is_better else "more"
            change = abs(value / usual - 1)
            return Verdict.BAD, (
                f"{measured}, {change:.1%} {word} than the usual {_shown(usual)} of its last "
                f"{len(recent)}, wanted at most {rule.fall:.0%}"
            )
    if rule.threshold is None and usual <= 0:
        known = f"{len(recent)} values before"
        return Verdict.UNJUDGED, f"{measured}, without a threshold and with {known}"
    return Verdict.GOOD, measured


def _shown(value: float) -> str:
    """As people read it: four digits are known of it, and no powers of ten are wanted."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _is_worse(value: float, limit: float, rule: Rule) -> bool:
    return value < limit if rule.higher_is_better else value > limit


def conclude(verdicts: Sequence[Verdict], nodes: int) -> Verdict:
    """What a run's measurements say of one node, each of which was of `nodes` nodes together.

    Of a bad pair either may be the bad one. So it takes two partners to find a node bad, and one
    with whom it is well to find it good: then the fault is the other's, or lies between the two.
    """
    if Verdict.GOOD in verdicts:
        return Verdict.GOOD
    if Verdict.UNJUDGED in verdicts:
        return Verdict.UNJUDGED
    return Verdict.BAD if verdicts.count(Verdict.BAD) >= nodes else Verdict.UNKNOWN
