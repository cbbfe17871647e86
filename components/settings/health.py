"""Settings of the checks that every node runs on itself."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, JsonValue, model_validator

from agents.checks.registry import CHECKS, Effect, Limit
from components.settings.slurm import Script
from components.settings.types import Model, Number, cross_field, known_names

GPU_COUNT: Final = "gpu-count"
"""Name of the check that fails if a GPU of the node is missing."""
Choices = dict[str, JsonValue]
"""For each check by name: a mapping with its `effect` and limits, or false to disable it."""


class Health(Model):
    """Checks that every node runs on itself; docs/health.md explains each."""

    enabled: bool = True
    """Run the checks, which drain nodes that are unfit for jobs."""
    interval: Annotated[int, Field(ge=10, le=65533), Number] = 60
    """Seconds between two rounds of checks."""
    node_states: Annotated[
        tuple[Literal["any", "alloc", "cycle", "idle", "mixed"], ...], Field(min_length=1)
    ] = ("any", "cycle")
    """States in which a node runs checks; one of them must be any or idle. cycle: the nodes run
    checks at different times."""
    checks: Choices = {}
    """Effect and limits of each check on all nodes, such as `disk: {max_percent: 90}`; false
    disables a check."""
    script: Script | None = None
    """Script that runs as root on every node: after the checks, or alone if they are disabled. The
    script may drain its node."""

    @model_validator(mode="after")
    def _drained_nodes_run_checks(self) -> Self:
        # A drained node becomes idle. If idle nodes ran no checks, it would stay drained.
        if not {"any", "idle"} & set(self.node_states):
            raise cross_field(
                "node_states",
                f"{list(self.node_states)}: without the state 'any' or 'idle', drained nodes run "
                "no checks and stay drained; add 'any' or 'idle'",
            )
        return self

    def is_everywhere(self) -> bool:
        """Return whether every node runs checks at all times, even while it is fully allocated."""
        states = set(self.node_states)
        return self.enabled and ("any" in states or {"alloc", "idle", "mixed"} <= states)

    @model_validator(mode="after")
    def _checks_are_known(self) -> Self:
        refuse_choices(self.checks)
        return self


def expected_gpus(choices: Choices) -> float | None:
    """Return the number of GPUs that valid choices expect on a node; None if they set no number."""
    choice = choices.get(GPU_COUNT)
    count = choice.get("count") if isinstance(choice, dict) else None
    return count if isinstance(count, int | float) else None


def refuse_choices(choices: Mapping[str, JsonValue]) -> None:
    """Refuse unknown checks, unknown limits and invalid values in a setting `checks`."""
    for name, choice in choices.items():
        key = f"checks.{name}"
        if name not in CHECKS:
            raise cross_field(key, f"unknown check; {known_names(name, CHECKS)}")
        if choice is False:
            continue
        if not isinstance(choice, dict):
            raise cross_field(
                key,
                f"{json.dumps(choice)}: expected false to disable the check, or a mapping of "
                "its limits",
            )
        limits = CHECKS[name].limits
        for limit, value in choice.items():
            if limit != "effect" and limit not in limits:
                known = known_names(limit, ("effect", *limits))
                raise cross_field(f"{key}.{limit}", f"unknown key; {known}")
            expected = (
                _expected_effect(value)
                if limit == "effect"
                else _expected(limit, limits[limit], value)
            )
            if expected:
                shown = json.dumps(value, ensure_ascii=False)
                raise cross_field(f"{key}.{limit}", f"{shown}: expected {expected}")


def _expected_effect(value: JsonValue) -> str | None:
    return None if value in list(Effect) else " or ".join(f"'{effect}'" for effect in Effect)


def _expected(limit: str, default: Limit, value: JsonValue) -> str | None:
    """Return the expected kind of value for a limit, or None if the value is valid."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, tuple):
        return _expected_list(default, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return "a number, at least 0"
    if limit.endswith("_percent"):
        return _expected_percentage(limit, value)
    return None


def _expected_percentage(limit: str, value: float) -> str | None:
    # A maximum of 0, or a minimum of 100, would drain every node.
    least, most = (1, 100) if limit.startswith("max_") else (0, 99)
    if 1 <= value <= most or value == least:
        return None
    hint = f"; did you mean {100 * value:g}?" if 0 < value < 1 else ""
    return f"a percentage from {least} to {most}{hint}"


def _expected_list(default: tuple[int, ...] | tuple[str, ...], value: JsonValue) -> str | None:
    """Return what is expected instead of the first wrong member, or None if the list is valid."""
    if not isinstance(value, list):
        return f"a list, such as {json.dumps(default[:2])}"
    return next((why for member in value if (why := _misfit(default[0], member))), None)


def _misfit(example: int | str, member: JsonValue) -> str | None:
    """Return what a member of a list should be instead, or None if the member is valid.

    The example shows the expected kind: a number, a path or a regular expression.
    """
    shown = json.dumps(member, ensure_ascii=False)
    if isinstance(example, int):
        is_number = isinstance(member, int) and not isinstance(member, bool)
        return None if is_number else f"a whole number instead of {shown}"
    if not isinstance(member, str) or not member or not member.isprintable():
        return f"printable text instead of {shown}"
    if example.startswith("/"):
        return None if member.startswith("/") else f"an absolute path instead of {shown}"
    try:
        re.compile(member)
    except re.error as error:
        return f"a regular expression instead of {shown} ({error})"
    return None
