"""Judges a fault by pytest's report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, TypeAlias
from xml.etree import ElementTree

from tests.mutants.commands import Ended
from tests.mutants.fault import Fault

Outcome: TypeAlias = Literal["passed", "failed", "error", "skipped"]
"""`error`: the test's set-up or tear-down failed, or pytest could not read the test."""
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "failure": "failed",
    "error": "error",
    "skipped": "skipped",
}
"""By the tag in a report of JUnit's form."""


class Verdict(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    ERROR = "error"
    """Neither: the test cannot tell."""


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
        """Outcomes of a test, with all its parameters where the node id names none."""
        return frozenset(
            case.outcome
            for case in self.cases
            if case.test == test or case.test.startswith(f"{test}[")
        )

    @property
    def told(self) -> str:
        """What went wrong: the messages of the tests, else the end of the output."""
        messages = (case.message for case in self.cases if case.outcome in ("failed", "error"))
        return "\n".join(messages) or self.ended.tail


def read(ended: Ended, report: Path) -> Run:
    """A run of pytest, by the report that it wrote in JUnit's form, if it came to that."""
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
    """Why a test says nothing of a fault: it does not pass without one. "" where it passes."""
    if run.ended.code is None:
        return "the tests without a fault ran past their time limit"
    outcomes = run.outcomes(test)
    if outcomes in ({"passed"}, {"passed", "skipped"}):
        return ""
    return f"{test} without the fault: {_words(outcomes)}"


def verdict(fault: Fault, test: str, run: Run) -> tuple[Verdict, str]:
    """What a test has shown of a fault, and why where it is not caught.

    Only a failure of the test itself counts, with pytest's exit code 1.
    """
    code, outcomes = run.ended.code, run.outcomes(test)
    counted = {"failed", "error"} if fault.setup_may_fail else {"failed"}
    if code is None:
        return Verdict.ERROR, f"{test} ran past its time limit"
    if code == 1 and outcomes & counted:
        return Verdict.CAUGHT, ""
    if code == 0 and outcomes in ({"passed"}, {"passed", "skipped"}):
        return Verdict.SURVIVED, f"{test} passes"
    return Verdict.ERROR, f"{test}: {_words(outcomes)}; pytest's exit code is {code}"


def _words(outcomes: frozenset[Outcome]) -> str:
    return " and ".join(sorted(outcomes)) or "not run"
