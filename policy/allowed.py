"""What a stack's config allows in addition to the rules: the settings `slurmstack:policy` and
`slurmstack:registry`."""

import json
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ConfigError(Exception):
    """The policy settings in the stack's config are invalid. The message is one line."""


class Allowed(BaseModel):
    """What the pack permits for one stack, in addition to what it permits for all stacks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    registries: tuple[Words, ...] = ()
    host_paths: tuple[Words, ...] = ()
    exceptions: Mapping[Words, Mapping[Words, Words]] = Field(default_factory=dict)
    """Exceptions by rule. For each rule: patterns of resources, each with the reason for the
    exception."""

    def excepts(self, rule: str, type_: str, name: str) -> bool:
        """Return whether a resource is an exception to a rule."""
        return any(matches(pattern, type_, name) for pattern in self.exceptions.get(rule, ()))


def matches(pattern: str, type_: str, name: str) -> bool:
    """Return whether a pattern (`name` or `type::name`) matches a resource; `*` is any text."""
    return fnmatchcase(f"{type_}::{name}" if "::" in pattern else name, pattern)


def read(config: Mapping[str, str], project: str, rules: Collection[str]) -> Allowed:
    """Read a stack's permissions from its config as Pulumi passes it. Raises ConfigError.

    Images may come from the stack's own `registry`. Without a registry, images whose names begin
    with the project's name are allowed, because they are already on the nodes.
    """
    key = f"{project}:policy"
    try:
        allowed = Allowed.model_validate(json.loads(config.get(key, "{}")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (key, *first["loc"])))
        raise ConfigError(
            f"{place}: {first['msg']}; correct this setting (docs/policy.md describes it)"
        ) from None
    except ValueError as error:
        raise ConfigError(
            f"{key}: invalid JSON: {error}; write the setting as YAML in the stack file "
            "(docs/policy.md describes it)"
        ) from None
    for rule in allowed.exceptions:
        if rule not in rules:
            known = ", ".join(sorted(rules))
            raise ConfigError(f"{key}.exceptions: '{rule}': expected one of {known}")
    own = config.get(f"{project}:registry") or project
    return allowed.model_copy(update={"registries": (own, *allowed.registries)})
