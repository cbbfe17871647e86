"""What a rule is, and how it treats what a preview does not know yet.

A rule reads properties through the policy SDK's proxies, which raise `UnknownValueError` where a
value is only known once the update runs. Then the rule is not passed: the SDK tells as a warning
that it could not be judged, and `up` judges it before the resource is made. `over` sees to it that
one such value hides no violation beside it.
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
    """What a violation does: nothing but tell, or stop the deployment."""

    ADVISORY = "advisory"
    MANDATORY = "mandatory"


@dataclass(frozen=True)
class Resource:
    """A resource as a rule sees it: its inputs, or once it is made its outputs."""

    type: str
    name: str
    urn: str
    props: Mapping[str, Any]
    protected: bool = False
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By property, URNs of the resources that its value comes from; known to stack rules only."""


@dataclass(frozen=True)
class About:
    """What people are told of a rule."""

    name: str
    """As exceptions and `--policy-pack-config` call it."""
    demand: str
    reason: str
    remedy: str
    level: Level = Level.MANDATORY


@dataclass(frozen=True)
class Rule:
    """A rule over one resource; `check` yields what is wrong with it."""

    about: About
    check: Callable[[Resource, Allowed], Iterable[str]]


@dataclass(frozen=True)
class StackRule:
    """A rule over all resources; `check` yields what is wrong, and with which, if with any one."""

    about: About
    check: Callable[[Sequence[Resource], Allowed], Iterable[tuple[Resource | None, str]]]


def over(items: Iterable[T], check: Callable[[T], Iterable[F]]) -> Iterator[F]:
    """What is found in each item, whatever is not known of the others.

    Raises UnknownValueError in the end, where anything was not known.
    """
    unknown: UnknownValueError | None = None
    for item in items:
        try:
            yield from check(item)
        except UnknownValueError as error:
            unknown = unknown or error
    if unknown is not None:
        raise unknown
