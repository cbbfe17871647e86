"""Checks drain their node only for the right reasons, and write evidence.

Evidence is the last result of the checks. It is stored in the node's Slurm record.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.checks import slurm
from agents.checks.passes import Outcome, Verdict
from agents.checks.registry import Effect
from agents.drains import CHECK, Evidence, is_own

DISK = Outcome("disk", Verdict.FAILED, "/tmp is full (97 %)")
CLOCK = Outcome("clock", Verdict.FAILED, "the clock is -9.0 s off the clock of the jail's storage")
REPORTED = Outcome(
    "gpu-throttle", Verdict.FAILED, "GPU 0: clocks are reduced (HW Slowdown)", Effect.REPORT
)
GOOD = Outcome("memory", Verdict.PASSED)
OPEN = Outcome("gpu-busy", Verdict.UNKNOWN, "jobs are running")


def with_verdict(outcome: Outcome, verdict: Verdict) -> Outcome:
    return Outcome(outcome.name, verdict, outcome.what, outcome.effect)


def test_drain_reason_names_the_first_failed_check() -> None:
    assert slurm.reason([GOOD, DISK, CLOCK], "") == f"{CHECK}disk: /tmp is full (97 %)"


def test_failed_check_drains_a_node_before_its_slurmd_registers_again() -> None:
    found = slurm.reason([DISK], "Not responding [slurm@2026-11-01T10:00:00]")
    assert found == f"{CHECK}disk: /tmp is full (97 %)"


@pytest.mark.parametrize("outcomes", [[], [GOOD], [GOOD, OPEN], [REPORTED]])
def test_only_a_failed_check_with_effect_drain_gives_a_reason(outcomes: list[Outcome]) -> None:
    assert slurm.reason(outcomes, "") is None


@pytest.mark.parametrize(
    "standing",
    [
        "broken fan, ticket 4711",
        "Epilog error",
        "slurmstack:leave",
        "slurmstack:jail",
        "slurmstack:kubernetes:cordoned: by an operator",
        "a person quotes slurmstack:check:disk: in the middle",
        # A person's reason may begin with the name of a check that passes.
        "memory",
        "memory: two modules are to be replaced",
    ],
)
def test_reason_set_by_others_is_left_unchanged(standing: str) -> None:
    assert slurm.reason([DISK, GOOD], standing) is None


def test_drain_reason_stays_until_the_named_check_passes() -> None:
    standing = f"{CHECK}disk: / is full (99 %)"

    assert slurm.reason([DISK, CLOCK], standing) is None
    assert slurm.reason([with_verdict(DISK, Verdict.UNKNOWN), CLOCK], standing) is None
    assert slurm.reason([CLOCK], standing) is None


def test_reason_names_another_failed_check_after_the_first_passes() -> None:
    standing = f"{CHECK}disk: / is full (99 %)"

    found = slurm.reason([with_verdict(DISK, Verdict.PASSED), CLOCK], standing)

    assert found == f"{CHECK}clock: the clock is -9.0 s off the clock of the jail's storage"


def test_reason_with_text_that_slurm_appended_is_recognized() -> None:
    standing = f"{CHECK}disk: / is full (99 %) : Not responding"

    assert slurm.reason([DISK], standing) is None


@given(st.text(max_size=2000))
def test_reason_is_one_line_that_slurm_accepts(what: str) -> None:
    found = slurm.reason([Outcome("disk", Verdict.FAILED, what)], "")

    assert found is not None
    assert is_own(found)
    assert len(found) <= 250
    assert found == " ".join(found.split())
    assert '"' not in found


def test_evidence_contains_only_checks_with_effect_drain() -> None:
    found = slurm.evidence(1_700_000_000, [GOOD, OPEN, DISK, CLOCK, REPORTED])

    assert found == Evidence(1_700_000_000, ("clock", "disk"), ("gpu-busy",))
