"""Types of rules, and how rules treat values that a preview does not know yet.

A rule reads properties through objects of the policy SDK. If Pulumi will know a value only during
the update, these objects raise `UnknownValueError`, and the SDK warns that it could not evaluate
the rule. During the update, the SDK evaluates the rule again, with the known value, before Pulumi
creates the resource.

A rule that checks several items must use the function `over`. Otherwise, an unknown value in one
item would hide violations in later items.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from pulumi_policy.proxy import UnknownValueError

from policy.allowed import Allowed

T = TypeVar("T")
F = TypeVar("F")


class Level(StrEnum):
    """Effect of a violation: Pulumi only reports the violation, or also stops the deployment."""

    ADVISORY = "advisory"
    MANDATORY = "mandatory"


@dataclass(frozen=True)
class Resource:
    """A resource with its inputs or, after its creation, its outputs."""

    type: str
    name: str
    urn: str
    props: Mapping[str, Any]
    protected: bool = False
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each property, the URNs of the resources from which Pulumi derives the property's value.
    Only rules about all resources of a stack get these URNs."""


@dataclass(frozen=True)
class About:
    """Description of a rule. Messages and docs/policy.md show it."""

    name: str
    """Name in exceptions and in `--policy-pack-config`."""
    demand: str
    reason: str
    remedy: str
    level: Level = Level.MANDATORY


@dataclass(frozen=True)
class Rule:
    """A rule about one resource; `check` yields its violations."""

    about: About
    check: Callable[[Resource, Allowed], Iterable[str]]


@dataclass(frozen=True)
class StackRule:
    """A rule about all resources; `check` yields violations, each with its resource or None."""

    about: About
    check: Callable[[Sequence[Resource], Allowed], Iterable[tuple[Resource | None, str]]]


def over(items: Iterable[T], check: Callable[[T], Iterable[F]]) -> Iterator[F]:
    """Check each item and yield what the check yields, even if values of other items are unknown.

    Raises UnknownValueError at the end if any value was unknown.
    """
    unknown: UnknownValueError | None = None
    for item in items:
        try:
            yield from check(item)
        except UnknownValueError as error:
            unknown = unknown or error
    if unknown is not None:
        raise unknown
