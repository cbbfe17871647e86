"""Find the URNs that a resource had before, by Pulumi's rules for aliases.

A URN is Pulumi's unique name of a resource. A program declares former names as aliases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.urns import make_urn, name_of, resource_type_of


@dataclass(frozen=True)
class Alias:
    """A former name of a resource. An empty field means the resource's current value.

    ``urn`` overrides the other fields.
    """

    urn: str = ""
    name: str = ""
    type: str = ""
    stack: str = ""
    project: str = ""
    parent: str = ""
    no_parent: bool = False


@dataclass(frozen=True)
class Place:
    """The parts of a resource's current URN; ``parent`` is itself a URN."""

    stack: str
    project: str
    parent: str
    type: str
    name: str


def former_urns(
    place: Place, aliases: Sequence[Alias], renamed: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the former URNs, in the order in which to look them up in the state.

    ``renamed`` maps the new URNs of other resources to their former URNs.
    """
    own = [_former_urn(place, alias, renamed) for alias in aliases]
    result = dict.fromkeys(own)
    above = renamed.get(place.parent)
    if above is not None:
        for name, kind in (
            (place.name, place.type),
            *((name_of(urn), resource_type_of(urn)) for urn in own),
        ):
            result[_under(place, above, kind, name)] = None
    return tuple(result)


def _former_urn(place: Place, alias: Alias, renamed: Mapping[str, str]) -> str:
    if alias.urn:
        return alias.urn
    parent = renamed.get(alias.parent, alias.parent) if alias.parent else place.parent
    return make_urn(
        alias.stack or place.stack,
        alias.project or place.project,
        "" if alias.no_parent else parent,
        alias.type or place.type,
        alias.name or place.name,
    )


def _under(place: Place, above: str, kind: str, name: str) -> str:
    """Return the URN that a resource had under its parent's former URN.

    If ``name`` begins with the parent's name, the parent's former name replaces this prefix.
    """
    parent = name_of(place.parent)
    if name.startswith(parent):
        name = name_of(above) + name.removeprefix(parent)
    return make_urn(place.stack, place.project, above, kind, name)
