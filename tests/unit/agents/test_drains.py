"""Evidence: the last check results of a node, stored in the node's Slurm record."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.drains import Evidence

_NAMES = st.lists(st.from_regex(r"[a-z-]{1,20}", fullmatch=True), max_size=30).map(tuple)


@given(st.integers(0, 2**40), _NAMES, _NAMES)
def test_parsed_evidence_equals_the_written_evidence(
    at: int, failed: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    evidence = Evidence(at, failed, unknown)

    assert Evidence.parse(str(evidence)) == evidence


def test_evidence_is_a_json_object_in_one_line() -> None:
    text = str(Evidence(1_700_000_000, ("disk",), ("gpu-busy",)))

    assert json.loads(text) == {
        "slurmstack": {"at": 1_700_000_000, "failed": ["disk"], "unknown": ["gpu-busy"]}
    }
    assert "\n" not in text


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "plain words",
        "[]",
        "null",
        '{"rack": 7}',
        '{"slurmstack": 7}',
        '{"slurmstack": {"at": 7}}',
        '{"slurmstack": {"at": "7", "failed": [], "unknown": []}}',
        '{"slurmstack": {"at": true, "failed": [], "unknown": []}}',
        '{"slurmstack": {"at": 7, "failed": "disk", "unknown": []}}',
        '{"slurmstack": {"at": 7, "failed": [7], "unknown": []}}',
        '{"slurmstack": {"at": 7, "failed": [], "unknown": []',
        '{"slurmstack": {"at": 7, "failed": ["' + "x" * 64 + '"], "unknown": []}}',
        "[" * 100_000,
    ],
)
def test_invalid_evidence_is_ignored(extra: str) -> None:
    assert Evidence.parse(extra) is None
