"""Compare a value with a threshold, and with the node's earlier values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Verdict(StrEnum):
    """Result of a measurement for a node."""

    GOOD = "good"
    BAD = "bad"
    UNJUDGED = "unjudged"
    """The value has no threshold and no history yet. Drains stay unchanged."""
    UNKNOWN = "unknown"
    """There is no value. Drains stay unchanged."""


@dataclass(frozen=True)
class Rule:
    """Limits for a check's values."""

    unit: str
    higher_is_better: bool = True
    threshold: float | None = None
    """Lowest good value (or the highest, if lower is better), or None for no threshold."""
    fall: float = 0.15
    """Largest fraction of the usual value by which a good value may be worse than that value."""
    history: int = 20
    """Number of newest values whose median is the usual value."""
    least: int = 5
    """Minimum number of earlier values. With fewer values, there is no usual value."""


def judge(value: float, history: Sequence[float], rule: Rule) -> tuple[Verdict, str]:
    """Return the verdict, and a text with the measured and expected values.

    `history` starts with the oldest value. A history of zeros, such as numbers of faults, is
    ignored, because a share of 0 cannot be a limit.
    """
    measured = f"{_shown(value)} {rule.unit}"
    if rule.threshold is not None and _is_worse(value, rule.threshold, rule):
        wanted = "at least" if rule.higher_is_better else "at most"
        return Verdict.BAD, f"{measured}, expected {wanted} {_shown(rule.threshold)}"
    recent = history[-rule.history :]
    usual = median(recent) if len(recent) >= rule.least else 0.0
    if usual > 0:
        share = 1 - rule.fall if rule.higher_is_better else 1 + rule.fall
        if _is_worse(value, usual * share, rule):
            word = "less" if rule.higher_is_better else "more"
            change = abs(value / usual - 1)
            return Verdict.BAD, (
                f"{measured}, {change:.1%} {word} than {_shown(usual)}, the median of the last "
                f"{len(recent)} values, expected at most {rule.fall:.0%} {word}"
            )
    if rule.threshold is None and usual <= 0:
        reason = f"no threshold, and only {len(recent)} earlier values"
        return Verdict.UNJUDGED, f"{measured}, not judged: {reason}"
    return Verdict.GOOD, measured


def _shown(value: float) -> str:
    """Format a value with four significant digits and without an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _is_worse(value: float, limit: float, rule: Rule) -> bool:
    return value < limit if rule.higher_is_better else value > limit


def conclude(verdicts: Sequence[Verdict], nodes: int) -> Verdict:
    """Return the verdict on one node from all its measurements in a run.

    `nodes` is the number of nodes per measurement. Either node of a bad pair may be at fault. So a
    node is bad if it is bad with two partners, and good if it is good with one partner.
    """
    if Verdict.GOOD in verdicts:
        return Verdict.GOOD
    if Verdict.UNJUDGED in verdicts:
        return Verdict.UNJUDGED
    return Verdict.BAD if verdicts.count(Verdict.BAD) >= nodes else Verdict.UNKNOWN
