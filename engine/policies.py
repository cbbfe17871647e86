"""Collect the violations that policy packs find. The packs run in separate processes.

As in Pulumi, a preview continues after a violation of a mandatory policy, shows all violations, and
fails at the end. An update stops before it changes the resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from engine.planning import Goal
from engine.state import StoredResource
from engine.values import Properties


class Level(StrEnum):
    """The effect of a violation: only a message, or a failed deployment."""

    ADVISORY = "advisory"
    MANDATORY = "mandatory"


@dataclass(frozen=True)
class Violation:
    """A violation of a policy by a resource or by the stack."""

    policy: str
    level: Level
    message: str
    urn: str


def mandatory(violations: Iterable[Violation]) -> tuple[str, ...]:
    """Return the names of violated mandatory policies, sorted and without duplicates."""
    return tuple(sorted({one.policy for one in violations if one.level is Level.MANDATORY}))


@dataclass
class Verdict:
    """The violations that one pack has found so far."""

    name: str
    version: str
    path: str
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """A resource as packs see it.

    Before an operation, its properties are the inputs; afterwards, they are the outputs.
    """

    urn: str
    goal: Goal
    properties: Properties
    provider: StoredResource | None = None


class Pack(Protocol):
    """A running policy pack."""

    verdict: Verdict

    async def analyze(self, subject: Subject) -> Sequence[Violation]:
        """Apply the resource policies, return the violations. Raises EngineError on a failure."""
        ...

    async def analyze_stack(self, subjects: Sequence[Subject], stack: str) -> Sequence[Violation]:
        """Apply the stack policies. Violations without a resource get the URN ``stack``."""
        ...


class Policies:
    """The packs of one deployment. Without packs, no resource violates a policy."""

    def __init__(self) -> None:
        self.packs: list[Pack] = []
        self._one_by_one = asyncio.Lock()  # as in Pulumi, a pack gets one request at a time

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(pack.verdict for pack in self.packs)

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of violated mandatory policies, which make the deployment fail."""
        said = (one for verdict in self.verdicts for one in verdict.violations)
        return mandatory(said)

    async def analyze(self, subject: Subject) -> tuple[str, ...]:
        """Return the mandatory policies that a resource violates. Raises EngineError."""
        found: list[Violation] = []
        async with self._one_by_one:
            for pack in self.packs:
                said = await pack.analyze(subject)
                pack.verdict.violations.extend(said)
                found.extend(said)
        return mandatory(found)

    async def analyze_stack(self, subjects: Sequence[Subject], stack: str) -> None:
        """Apply the policies to the whole stack. Raises EngineError."""
        async with self._one_by_one:
            for pack in self.packs:
                pack.verdict.violations.extend(await pack.analyze_stack(subjects, stack))
