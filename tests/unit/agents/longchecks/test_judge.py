"""A value is compared only with its threshold and with its node's history."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.longchecks.judge import Rule, Verdict, conclude, judge

UP = Rule("GB/s", threshold=100, fall=0.2, history=10, least=5)
DOWN = Rule("failures", higher_is_better=False, threshold=0)
FREE = Rule("GB/s", fall=0.2, history=10, least=5)
values = st.floats(1, 1e6)


@pytest.mark.parametrize(
    ("value", "history", "rule", "verdict", "text"),
    [
        (100, [], UP, Verdict.GOOD, "100 GB/s"),
        (99.9, [], UP, Verdict.BAD, "99.9 GB/s, expected at least 100"),
        (0, [], DOWN, Verdict.GOOD, "0 failures"),
        (2, [0] * 10, DOWN, Verdict.BAD, "2 failures, expected at most 0"),
        (160, [200] * 5, UP, Verdict.GOOD, "160 GB/s"),
        (159, [200] * 5, UP, Verdict.BAD, "20.5% less than 200, the median of the last 5 values"),
        (159, [200] * 4, UP, Verdict.GOOD, "159 GB/s"),
        (
            50,
            [200] * 4,
            FREE,
            Verdict.UNJUDGED,
            "not judged: the check has no threshold, and the node has only 4 earlier values",
        ),
        (
            50,
            [0] * 5,
            FREE,
            Verdict.UNJUDGED,
            "the check has no threshold, and the median of the node's last 5 values is 0",
        ),
        (50, [200] * 5, FREE, Verdict.BAD, "75.0% less than 200, the median"),
        (500, [200] * 5, FREE, Verdict.GOOD, "500 GB/s"),
        # The oldest values are outside the history, and the median ignores an outlier.
        (80, [1000] * 20 + [100] * 10, FREE, Verdict.GOOD, "80 GB/s"),
        (95, [100, 100, 100, 100, 100, 9999], FREE, Verdict.GOOD, "95 GB/s"),
        (17_160.4, [], UP, Verdict.GOOD, "17160 GB/s"),
        (12, [10] * 5, Rule("s", False, fall=0.1), Verdict.BAD, "20.0% more than 10, the median"),
    ],
)
def test_verdict_names_the_measured_and_the_expected_value(
    value: float, history: list[float], rule: Rule, verdict: Verdict, text: str
) -> None:
    found, message = judge(value, history, rule)
    assert found is verdict
    assert text in message


@given(values, values, st.lists(values, max_size=30))
def test_higher_value_never_gets_a_worse_verdict(
    one: float, other: float, history: list[float]
) -> None:
    rank = [Verdict.BAD, Verdict.UNJUDGED, Verdict.GOOD]
    for rule in (UP, FREE):
        low, high = (judge(value, history, rule)[0] for value in sorted((one, other)))
        assert rank.index(low) <= rank.index(high)


@given(values, st.lists(values, max_size=4))
def test_value_without_threshold_and_history_gets_no_verdict(
    value: float, history: list[float]
) -> None:
    assert judge(value, history, FREE)[0] is Verdict.UNJUDGED


@given(st.lists(values, min_size=5, max_size=30))
def test_value_equal_to_the_median_is_good(history: list[float]) -> None:
    recent = sorted(history[-10:])
    middle = recent[len(recent) // 2]
    assert math.isfinite(middle)
    assert judge(middle, history, FREE)[0] is Verdict.GOOD


@pytest.mark.parametrize(
    ("verdicts", "nodes", "verdict"),
    [
        ([Verdict.BAD], 1, Verdict.BAD),
        ([Verdict.GOOD], 1, Verdict.GOOD),
        ([Verdict.UNKNOWN], 1, Verdict.UNKNOWN),
        ([Verdict.BAD], 2, Verdict.UNKNOWN),
        ([Verdict.BAD, Verdict.BAD], 2, Verdict.BAD),
        ([Verdict.BAD, Verdict.GOOD], 2, Verdict.GOOD),
        ([Verdict.BAD, Verdict.UNKNOWN], 2, Verdict.UNKNOWN),
        ([Verdict.BAD, Verdict.BAD, Verdict.GOOD], 2, Verdict.GOOD),
        ([Verdict.BAD, Verdict.UNJUDGED], 2, Verdict.UNJUDGED),
    ],
)
def test_node_is_bad_after_two_bad_and_no_good_pairs(
    verdicts: list[Verdict], nodes: int, verdict: Verdict
) -> None:
    assert conclude(verdicts, nodes) is verdict
