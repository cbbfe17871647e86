"""What policy packs say of a deployment; the packs themselves run in processes of their own.

As with Pulumi's command, a mandatory violation lets a preview go on, so that all of them are seen,
and fails it in the end; an update it stops before the resource is touched.
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
    """What a violation does: nothing but tell, or fail the deployment."""

    ADVISORY = "advisory"
    MANDATORY = "mandatory"


@dataclass(frozen=True)
class Violation:
    """What a policy says against a resource, or against the stack."""

    policy: str
    level: Level
    message: str
    urn: str


def mandatory(violations: Iterable[Violation]) -> tuple[str, ...]:
    """Names of the policies that are to be kept and are not, each once and in order."""
    return tuple(sorted({one.policy for one in violations if one.level is Level.MANDATORY}))


@dataclass
class Verdict:
    """What one pack has said so far."""

    name: str
    version: str
    path: str
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """A resource as packs are shown it: before an operation its inputs, in the end its outputs."""

    urn: str
    goal: Goal
    properties: Properties
    provider: StoredResource | None = None


class Pack(Protocol):
    """A pack that has been started."""

    verdict: Verdict

    async def analyze(self, subject: Subject) -> Sequence[Violation]:
        """What its resource policies say. Raises EngineError where it cannot tell."""
        ...

    async def analyze_stack(self, subjects: Sequence[Subject], stack: str) -> Sequence[Violation]:
        """What its stack policies say; of the whole ``stack`` where of no resource."""
        ...


class Policies:
    """The packs of one deployment; with none of them, everything is allowed."""

    def __init__(self) -> None:
        self.packs: list[Pack] = []
        self._one_by_one = asyncio.Lock()  # as Pulumi's engine asks; packs may rely on it

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What all packs have said."""
        return tuple(pack.verdict for pack in self.packs)

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the mandatory policies that are violated: the deployment fails."""
        said = (one for verdict in self.verdicts for one in verdict.violations)
        return mandatory(said)

    async def analyze(self, subject: Subject) -> tuple[str, ...]:
        """Names of the mandatory policies that a resource violates. Raises EngineError."""
        found: list[Violation] = []
        async with self._one_by_one:
            for pack in self.packs:
                said = await pack.analyze(subject)
                pack.verdict.violations.extend(said)
                found.extend(said)
        return mandatory(found)

    async def analyze_stack(self, subjects: Sequence[Subject], stack: str) -> None:
        """Have the whole stack judged. Raises EngineError."""
        async with self._one_by_one:
            for pack in self.packs:
                pack.verdict.violations.extend(await pack.analyze_stack(subjects, stack))
