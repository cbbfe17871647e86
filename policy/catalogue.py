"""All rules of the pack."""

from collections.abc import Iterator, Sequence

from policy.access import LOAD_BALANCERS, NAMESPACES, NETWORK_POLICIES, RBAC
from policy.allowed import Allowed, matches
from policy.data import PROTECTED_DATA, REPLACED_DATA
from policy.pods import (
    ADDED_CONTAINERS,
    HOST_NAMESPACES,
    HOST_PATHS,
    LIMITS,
    NON_ROOT,
    PRIVILEGED,
    REQUESTS,
)
from policy.provenance import CHARTS, IMAGES
from policy.rule import About, Level, Resource, Rule, StackRule
from policy.secrecy import MADE_SECRETS, OPEN_SECRETS

RULES: tuple[Rule, ...] = (
    PRIVILEGED,
    HOST_NAMESPACES,
    HOST_PATHS,
    NON_ROOT,
    ADDED_CONTAINERS,
    REQUESTS,
    LIMITS,
    IMAGES,
    CHARTS,
    OPEN_SECRETS,
    LOAD_BALANCERS,
    RBAC,
    NAMESPACES,
    PROTECTED_DATA,
)
"""Rules about single resources."""


def _idle_exceptions(resources: Sequence[Resource], allowed: Allowed) -> Iterator[tuple[None, str]]:
    for rule, patterns in allowed.exceptions.items():
        for pattern in patterns:
            if not any(matches(pattern, one.type, one.name) for one in resources):
                yield None, f"policy.exceptions.{rule}: '{pattern}' matches no resource"


IDLE_EXCEPTIONS = StackRule(
    About(
        "idle-exceptions",
        "Every exception matches a resource of the stack",
        "an unused exception would apply to any later resource with that name",
        "correct the pattern of the exception in policy.exceptions in the stack's config, "
        "or remove the exception",
        Level.ADVISORY,
    ),
    _idle_exceptions,
)

STACK_RULES: tuple[StackRule, ...] = (
    MADE_SECRETS,
    NETWORK_POLICIES,
    REPLACED_DATA,
    IDLE_EXCEPTIONS,
)
"""Rules about all resources of a stack."""
ABOUT: tuple[About, ...] = (*(one.about for one in RULES), *(one.about for one in STACK_RULES))
NAMES: tuple[str, ...] = tuple(about.name for about in ABOUT)
