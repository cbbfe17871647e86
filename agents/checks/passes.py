"""One pass: what the checks of an occasion need is read, once and all at once, and then judged."""

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
    """What has come of a check."""

    name: str
    verdict: Verdict
    what: str = ""
    """What is wrong, or why nothing can be told."""
    effect: Effect = Effect.DRAIN

    @property
    def drains(self) -> bool:
        return self.verdict is Verdict.FAILED and self.effect is Effect.DRAIN


def carry_out(chosen: Sequence[Chosen], state: Path) -> list[Outcome]:
    """The outcome of each, after no more than the longest time that one of their readers has."""
    limits = {one.check.name: one.limits for one in chosen}
    needed = dict.fromkeys(name for one in chosen for name in one.check.reads)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    readings = bounded.run({name: _task(READERS[name], limits) for name in needed}, state)
    return [judge(one, readings) for one in chosen]


def _task(reader: Reader, limits: Limits) -> bounded.Task:
    function = reader.function
    return reader.seconds, reader.command if function is None else lambda: function(limits)


def judge(chosen: Chosen, readings: Mapping[str, Reading | None]) -> Outcome:
    """The outcome of a check on what has been read for it."""
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
        # Whatever was read is nothing that any check knows.
        what = f"{'/'.join(check.reads)}: not understood: {error}"
        return Outcome(check.name, Verdict.UNKNOWN, what, chosen.effect)
    return Outcome(
        check.name, Verdict.FAILED if wrong else Verdict.PASSED, wrong or "", chosen.effect
    )


class _SilenceError(Exception):
    """A reader did not end in time."""


def _text(reader: Reader, reading: Reading | None) -> str:
    """What a reader's checks are to judge. Raises `UnknownError` where there is nothing."""
    if reading is None:
        raise _SilenceError(f"{reader.name} does not answer within {reader.seconds:g} s")
    if reading.code == bounded.MISSING:
        raise UnknownError(f"{reader.name}: there is no such command")
    if reading.code == 0:
        return reading.text
    said = " ".join(reading.said.split()) or f"exit code {reading.code}"
    if not reader.told:
        raise UnknownError(f"{reader.name}: {said}")
    return f"{reading.text}\n{reading.said}"
