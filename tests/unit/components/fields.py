"""List every key that a stack file may contain, as the models of the settings define it."""

import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from components.settings import Settings

_MANY: dict[Any, str] = {tuple: "[]", dict: ".*"}


def fields(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield keys such as `nodesets[].gpus.count` or `cluster.machines.*.disk`.

    The key of a model, or of a list of models, comes before the keys of the model's fields.
    """
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        yield key, field
        for inner in _models_in(field.annotation):
            yield from fields(inner, f"{key}{_MANY.get(get_origin(field.annotation), '')}.")


def pattern(key: str) -> str:
    """Convert a key such as `nodesets[0].cpus` to the form that `fields` yields."""
    return re.sub(r"^(cluster\.machines|placement)\.[^.]+", r"\1.*", re.sub(r"\[\d+\]", "[]", key))


def put(values: dict[str, Any], key: str, value: object) -> None:
    """Set one value. Braces enclose a part that contains dots: `slurm.extra.{slurm.conf}`."""
    *path, last = _parts(key)
    place: Any = values
    for part in path:
        place = place[part]
    place[last] = value


def drop(values: dict[str, Any], key: str) -> None:
    """Remove one value."""
    *path, last = _parts(key)
    place: Any = values
    for part in path:
        place = place[part]
    del place[last]


def named(values: dict[str, Any], key: str) -> str:
    """Return a key as errors show it: `users[bob]` instead of `users[1]`, if no other user has the
    same name."""
    shown = ""
    here: Any = values
    for part in _parts(key):
        if not isinstance(part, int):
            shown += f".{part}" if shown else part
            here = here.get(part) if isinstance(here, dict) else None
            continue
        names = [item.get("name") if isinstance(item, dict) else None for item in here or []]
        name = names[part] if part < len(names) else None
        clear = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", name)
        shown += f"[{name}]" if clear and names.count(name) == 1 else f"[{part}]"
        here = here[part] if here and part < len(here) else None
    return shown


def _parts(key: str) -> list[str | int]:
    found = re.findall(r"\{([^}]*)\}|\[(\d+)\]|([^.\[\]{}]+)", key)
    return [int(index) if index else braced or name for braced, index, name in found]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
