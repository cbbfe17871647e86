"""Run several checks once: start all readers that they need in parallel, then check the texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agents.checks import bounded
from agents.checks.bounded import Reading
from agents.checks.judging import UnknownError
from agents.checks.readers import READERS, Limits, Reader
from agents.checks.registry import Effect
from agents.checks.settings import Chosen


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """Result of a check."""

    name: str
    verdict: Verdict
    what: str = ""
    """Description of the fault, or the reason why the check cannot decide."""
    effect: Effect = Effect.DRAIN

    @property
    def drains(self) -> bool:
        return self.verdict is Verdict.FAILED and self.effect is Effect.DRAIN


def carry_out(chosen: Sequence[Chosen], state: Path) -> list[Outcome]:
    """Run checks and return their outcomes. Takes at most the longest time limit of a reader."""
    limits = {one.check.name: one.limits for one in chosen}
    needed = dict.fromkeys(name for one in chosen for name in one.check.reads)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    readings = bounded.run({name: _task(READERS[name], limits) for name in needed}, state)
    return [judge(one, readings) for one in chosen]


def _task(reader: Reader, limits: Limits) -> bounded.Task:
    function = reader.function
    return reader.seconds, reader.command if function is None else lambda: function(limits)


def judge(chosen: Chosen, readings: Mapping[str, Reading | None]) -> Outcome:
    """Evaluate the readings that a check needs, and return the outcome of the check."""
    check = chosen.check
    try:
        texts = [_text(READERS[name], readings[name]) for name in check.reads]
        wrong = check.judge(*texts, **chosen.limits)
    except _SilenceError as silence:
        verdict = Verdict.FAILED if check.silence_fails else Verdict.UNKNOWN
        return Outcome(check.name, verdict, str(silence), chosen.effect)
    except UnknownError as error:
        return Outcome(check.name, Verdict.UNKNOWN, str(error), chosen.effect)
    except (ArithmeticError, LookupError, ValueError) as error:
        # The text has an unknown format.
        what = (
            f"{'/'.join(check.reads)}: cannot read the output, because its format is unexpected: "
            f"{error}; check the version of this program"
        )
        return Outcome(check.name, Verdict.UNKNOWN, what, chosen.effect)
    return Outcome(
        check.name, Verdict.FAILED if wrong else Verdict.PASSED, wrong or "", chosen.effect
    )


class _SilenceError(Exception):
    """A reader timed out."""


def _text(reader: Reader, reading: Reading | None) -> str:
    """Return the text of a reading.

    Raises `_SilenceError` if the reader timed out, and `UnknownError` if it failed.
    """
    if reading is None:
        raise _SilenceError(
            f"{reader.name}: no answer within {reader.seconds:g} s; check the devices and the "
            "storage of this node"
        )
    if reading.code == bounded.MISSING:
        raise UnknownError(
            f"{reader.name}: the command is missing on this node; install the command in the "
            "image or the jail"
        )
    if reading.code == 0:
        return reading.text
    said = " ".join(reading.said.split()) or f"exit code {reading.code}"
    if not reader.told:
        raise UnknownError(f"{reader.name}: {said}")
    return f"{reading.text}\n{reading.said}"
