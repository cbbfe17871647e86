"""Judge a measured value: compare it with a threshold, and with the node's earlier values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


class Verdict(StrEnum):
    """Result of a measurement for a node."""

    GOOD = "good"
    BAD = "bad"
    UNJUDGED = "unjudged"
    """No limit applies: the check has no threshold, and the node has too few earlier values. Drains
    of the node stay unchanged."""
    UNKNOWN = "unknown"
    """The measurement gave no value. Drains of the node stay unchanged."""


@dataclass(frozen=True)
class Rule:
    """Rule that decides whether a value of a check is good. The usual value is the median of the
    node's newest earlier values."""

    unit: str
    higher_is_better: bool = True
    threshold: float | None = None
    """Lowest good value, or the highest good value if lower values are better. None for no
    threshold."""
    fall: float = 0.15
    """How much worse than the usual value a good value may be, as a fraction of the usual value."""
    history: int = 20
    """Maximum number of earlier values from which the usual value is computed."""
    least: int = 5
    """Minimum number of earlier values. With fewer values, there is no usual value."""


def judge(value: float, history: Sequence[float], rule: Rule) -> tuple[Verdict, str]:
    """Return the verdict, and a text with the measured and expected values.

    `history` starts with the oldest value. It is ignored if its median is 0, as for a check that
    counts faults: the limit is a fraction of the median, and so would also be 0.
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
                f"{measured}, {change:.1%} {word} than {_shown(usual)}, the median of the "
                f"last {len(recent)} values, expected at most {rule.fall:.0%} {word}"
            )
    if rule.threshold is None and usual <= 0:
        reason = (
            f"the node has only {len(recent)} earlier values"
            if len(recent) < rule.least
            else f"the median of the node's last {len(recent)} values is {_shown(median(recent))}"
        )
        return (
            Verdict.UNJUDGED,
            (
                f"{measured}, not judged: the check has no threshold, and {reason}; set the "
                "check's 'threshold' in 'long_checks.checks'"
            ),
        )
    return Verdict.GOOD, measured


def _shown(value: float) -> str:
    """Format a value with four significant digits and without an exponent."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _is_worse(value: float, limit: float, rule: Rule) -> bool:
    return value < limit if rule.higher_is_better else value > limit


def conclude(verdicts: Sequence[Verdict], nodes: int) -> Verdict:
    """Return the verdict on one node from all its measurements in a run.

    `nodes` is the number of nodes per measurement. If a pair of nodes is bad, either node may be at
    fault. So a node is bad only after bad measurements with two different partners. One good
    measurement is enough for a good node.
    """
    if Verdict.GOOD in verdicts:
        return Verdict.GOOD
    if Verdict.UNJUDGED in verdicts:
        return Verdict.UNJUDGED
    return Verdict.BAD if verdicts.count(Verdict.BAD) >= nodes else Verdict.UNKNOWN
