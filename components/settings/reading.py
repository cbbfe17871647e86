"""Reads a stack's settings, and says what is wrong with them in one line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from components.conventions import PROJECT
from components.settings.models import Settings
from components.settings.types import known_names


class SettingsError(Exception):
    """The settings cannot be used; the text names each key, its value and what is expected."""


def from_config(config: Mapping[str, str]) -> Settings:
    """Settings from Pulumi's configuration: full keys, objects as JSON text.

    Keys of other namespaces (`kubernetes:…`) are not ours to judge. Raises `SettingsError`.
    """
    values = {key: _decode(value) for key, value in config.items()}
    return _validate(values, "the stack's configuration")


def read_stack(stack: str, root: Path) -> Settings:
    """Settings from `Pulumi.<stack>.yaml` below `root`. Raises `SettingsError`."""
    path = root / f"Pulumi.{stack}.yaml"
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SettingsError(
            f"no stack '{stack}': {path.name} is not there; "
            f"stacks here: {', '.join(_stacks(root)) or 'none'}"
        ) from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path.name}: not YAML: {' '.join(str(error).split())}") from error
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise SettingsError(f"{path.name}: expected a mapping 'config' of slurmstack:… keys")
    return _validate(config, path.name)


def _stacks(root: Path) -> list[str]:
    return sorted(path.name.split(".")[1] for path in root.glob("Pulumi.*.yaml"))


def _decode(value: str) -> Any:
    """Pulumi hands scalars as their text and everything else as JSON."""
    return json.loads(value) if value[:1] in ("{", "[") else value


def _validate(config: Mapping[str, Any], source: str) -> Settings:
    prefix = f"{PROJECT}:"
    values = {
        key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)
    }
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_problem(details) for details in error.errors())
        raise SettingsError(f"{source}: {problems}") from None


# --- Errors for people ---------------------------------------------------------------------------


def _problem(details: ErrorDetails) -> str:
    """One problem as `key: value: what is expected`."""
    place = [part for part in details["loc"] if part != "[key]"]
    if place[:1] == ["cluster"] and place[1:2] and place[1] in _CLUSTER_KINDS:
        del place[1]
    key = _key(place)
    match details["type"]:
        case "cross_field":
            return f"{_key([*place, *details['ctx']['key'].split('.')])}: {details['msg']}"
        case "extra_forbidden":
            return f"{key}: unknown key; {known_names(str(place[-1]), _fields_at(place[:-1]))}"
        case "missing":
            return f"{key}: is required; add it"
        case "union_tag_not_found" | "union_tag_invalid":
            return f"{key}.kind: expected one of {', '.join(sorted(_CLUSTER_KINDS))}"
        case _:
            message = details["msg"].removeprefix("Input should be ")
            expected = message if message != details["msg"] else None
            value = json.dumps(details["input"], default=str, ensure_ascii=False)
            shown = value if len(value) <= 60 else f"{value[:57]}…"
            return f"{key}: {shown}: " + (f"expected {expected}" if expected else details["msg"])


def _key(place: Sequence[str | int]) -> str:
    """A place in the settings as a user writes it: `slurmstack:nodesets[0].cpus`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return f"{PROJECT}:" + "".join(parts).lstrip(".")


def _fields_at(path: list[str | int]) -> list[str]:
    """Names of the fields that are allowed at a place in the settings."""
    models: list[type[BaseModel]] = [Settings]
    for part in path:
        if isinstance(part, str):
            models = [
                inner
                for model in models
                if part in model.model_fields
                for inner in _models_in(model.model_fields[part].annotation)
            ]
    return sorted({name for model in models for name in model.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


_CLUSTER_KINDS = frozenset({"local", "existing"})
