"""Pulumi's names of resources: URNs and provider references.

A URN is ``urn:pulumi:<stack>::<project>::<types>::<name>``. ``<types>`` has the types of all
parents and of the resource itself, separated by ``$``. A provider reference is ``<urn>::<id>``.
Only the name of a resource may contain ``::``.
"""

from __future__ import annotations

import re
from typing import Final

STACK_TYPE: Final = "pulumi:pulumi:Stack"
PROVIDER_PREFIX: Final = "pulumi:providers:"
_PREFIX: Final = "urn:pulumi:"


def make_urn(stack: str, project: str, parent: str, resource_type: str, name: str) -> str:
    """Return the URN of a resource; ``parent`` is a URN, or "" for none."""
    qualified = resource_type
    if parent and resource_type_of(parent) != STACK_TYPE:
        qualified = f"{_qualified_type(parent)}${resource_type}"
    return f"{_PREFIX}{stack}::{project}::{qualified}::{name}"


def _qualified_type(urn: str) -> str:
    return urn.split("::", 3)[2]


def resource_type_of(urn: str) -> str:
    """Return the type token of the resource itself, without the types of its parents."""
    return _qualified_type(urn).rpartition("$")[2]


def name_of(urn: str) -> str:
    """Return the name that the program gave the resource."""
    return urn.split("::", 3)[3]


def package_of(resource_type: str) -> str:
    """Return the package that manages a type: ``kubernetes`` for ``kubernetes:core/v1:Pod``."""
    return resource_type.partition(":")[0]


def is_provider(resource_type: str) -> bool:
    """Return whether resources of the type are providers themselves."""
    return resource_type.startswith(PROVIDER_PREFIX)


def is_default_provider(urn: str) -> bool:
    """Return whether the resource is a provider that the engine, not the program, created."""
    return (
        is_provider(resource_type_of(urn))
        and re.fullmatch("default(_.*)?", name_of(urn)) is not None
    )


def provided_package(provider_type: str) -> str:
    """Return a provider's package: ``kubernetes`` for ``pulumi:providers:kubernetes``."""
    return provider_type.removeprefix(PROVIDER_PREFIX)


def split_reference(reference: str) -> tuple[str, str]:
    """Return URN and id of a provider reference. Raises ValueError on an invalid reference."""
    urn, separator, provider_id = reference.rpartition("::")
    if not separator or urn.count("::") < 3:
        raise ValueError(f"{reference!r} is not a provider reference; expected <urn>::<id>")
    return urn, provider_id


def short(urn: str) -> str:
    """Return type and name for display: ``kubernetes:core/v1:Pod web``."""
    return f"{resource_type_of(urn)} {name_of(urn)}"
