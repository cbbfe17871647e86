"""What a stack's own config allows: `slurmstack:policy`, and the registry of its images."""

import json
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ConfigError(Exception):
    """The stack's config does not say what is allowed; one line, for the user."""


class Allowed(BaseModel):
    """What is allowed in one stack beside what is allowed in all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    registries: tuple[Words, ...] = ()
    host_paths: tuple[Words, ...] = ()
    exceptions: Mapping[Words, Mapping[Words, Words]] = Field(default_factory=dict)
    """By rule and pattern of resources, why the rule does not hold there."""

    def excepts(self, rule: str, type_: str, name: str) -> bool:
        """Whether a rule does not hold for a resource."""
        return any(matches(pattern, type_, name) for pattern in self.exceptions.get(rule, ()))


def matches(pattern: str, type_: str, name: str) -> bool:
    """Whether a pattern means a resource: by its name, or as `type::name`, `*` being any text."""
    return fnmatchcase(f"{type_}::{name}" if "::" in pattern else name, pattern)


def read(config: Mapping[str, str], project: str, rules: Collection[str]) -> Allowed:
    """What a stack allows, from its config as Pulumi hands it over.

    Images may come from the stack's own `registry`; without one, its nodes have those that are
    called after the project. Raises ConfigError.
    """
    key = f"{project}:policy"
    try:
        said = Allowed.model_validate(json.loads(config.get(key, "{}")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (key, *first["loc"])))
        raise ConfigError(f"{place}: {first['msg']}; see docs/policy.md") from None
    except ValueError as error:
        raise ConfigError(f"{key}: expected JSON, but {error}; see docs/policy.md") from None
    for rule in said.exceptions:
        if rule not in rules:
            known = ", ".join(sorted(rules))
            raise ConfigError(f"{key}.exceptions: '{rule}' is no rule; expected one of {known}")
    own = config.get(f"{project}:registry") or project
    return said.model_copy(update={"registries": (own, *said.registries)})
