"""Types of rules, and the handling of values that a preview does not know yet.

A rule reads properties through the policy SDK's proxies, which raise `UnknownValueError` if a value
is known only during the update. In this case, the SDK warns that it could not evaluate the rule.
The update evaluates the rule again, with the known value, before it creates the resource. A rule
that checks several items uses `over`: an unknown value in one item then hides no violation in
another.
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
    """Effect of a violation: only report it, or stop the deployment."""

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
    """For each property, URNs of the resources from which its value is derived. Only stack rules
    get them."""


@dataclass(frozen=True)
class About:
    """Description of a rule, for messages and docs/policy.md."""

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
    """Yield the findings in each item, even if values of other items are unknown.

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
