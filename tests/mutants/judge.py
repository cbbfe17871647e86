"""Decide from pytest's report whether a test catches a fault."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, TypeAlias
from xml.etree import ElementTree

from tests.mutants.commands import Ended
from tests.mutants.fault import Fault

Outcome: TypeAlias = Literal["passed", "failed", "error", "skipped"]
"""`error`: the test's setup or teardown failed, or pytest could not read the test."""
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "failure": "failed",
    "error": "error",
    "skipped": "skipped",
}
"""Outcomes by the tag in a JUnit report."""


class Verdict(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    ERROR = "error"
    """The test has no usable result, so the fault is neither caught nor missed."""


@dataclass(frozen=True)
class Case:
    """A test with one set of parameters."""

    test: str
    """Node id."""
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True)
class Run:
    """One run of pytest."""

    ended: Ended
    cases: tuple[Case, ...]

    def outcomes(self, test: str) -> frozenset[Outcome]:
        """Return the outcomes of a test, or of all its cases if the node id has no parameters."""
        return frozenset(
            case.outcome
            for case in self.cases
            if case.test == test or case.test.startswith(f"{test}[")
        )

    @property
    def explanation(self) -> str:
        """Return the reason of a failure: the tests' messages, or else the end of the output."""
        messages = (case.message for case in self.cases if case.outcome in ("failed", "error"))
        return "\n".join(messages) or self.ended.tail


def read(ended: Ended, report: Path) -> Run:
    """Read the JUnit report of a pytest run, if there is a report."""
    return Run(ended, tuple(_cases(report)) if report.is_file() else ())


def _cases(report: Path) -> Iterator[Case]:
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # pytest's own
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        parts = [part for part in case if part.tag in _OUTCOMES]
        for part in parts:
            yield Case(test, _OUTCOMES[part.tag], part.get("message", ""))
        if not parts:
            yield Case(test, "passed")


def problem_without(run: Run, test: str) -> str:
    """Return why a test does not pass without the fault, or "" if the test passes."""
    if run.ended.code is None:
        return "the run of the tests without a fault timed out"
    outcomes = run.outcomes(test)
    if outcomes in ({"passed"}, {"passed", "skipped"}):
        return ""
    return f"{test} must pass without the fault; outcome: {_words(outcomes)}"


def verdict(fault: Fault, test: str, run: Run) -> tuple[Verdict, str]:
    """Return a test's verdict on a fault, and the reason if the test does not catch it.

    The test catches the fault if the test itself fails and pytest's exit code is 1. If the fault
    has `setup_may_fail`, an error in the test's setup also catches the fault.
    """
    code, outcomes = run.ended.code, run.outcomes(test)
    counted = {"failed", "error"} if fault.setup_may_fail else {"failed"}
    if code is None:
        return Verdict.ERROR, f"{test} timed out with the fault"
    if code == 1 and outcomes & counted:
        return Verdict.CAUGHT, ""
    if code == 0 and outcomes in ({"passed"}, {"passed", "skipped"}):
        return Verdict.SURVIVED, f"{test} passes with the fault"
    return Verdict.ERROR, (
        f"{test} must fail with the fault and exit code 1; "
        f"outcome: {_words(outcomes)}, exit code: {code}"
    )


def _words(outcomes: frozenset[Outcome]) -> str:
    return " and ".join(sorted(outcomes)) or "not run"
