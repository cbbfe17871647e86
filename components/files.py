"""Check that all files that the settings name are readable. The program does so before the stack
creates anything."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel

from components.identity.users import authorized_keys
from components.settings import Settings, SettingsError
from components.settings.types import ProjectFile
from components.slurmconf.scripts import MOUNTED, SHIPPED, read_text, script_files, text_of

_MARK: Final = get_args(ProjectFile)[1]


def check_files(settings: Settings, root: Path) -> None:
    """Raise `SettingsError`, with a line for each file below `root` that cannot be read."""
    reads: list[Callable[[], object]] = [
        partial(authorized_keys, user, root) for user in settings.users
    ]
    reads += [partial(script_files, settings, root, {name}) for name in (*SHIPPED, *MOUNTED)]
    lua = settings.slurm.job_submit_lua
    reads += [partial(text_of, "slurm.job_submit_lua", lua, root)] if lua else []
    reads += [
        partial(read_text, key, file, root)
        for key, file in project_files(settings)
        if not key.endswith(".file")
    ]
    problems = []
    for read in reads:
        try:
            read()
        except SettingsError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError(*problems)


def project_files(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each file that a part of the settings names: the key of the setting, and the file's
    path."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            place, inner = f"{key}.{name}".lstrip("."), getattr(value, name)
            if isinstance(inner, str) and _MARK in _marks(field.annotation, field.metadata):
                yield place, inner
            else:
                yield from project_files(inner, place)
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from project_files(item, f"{key}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from project_files(item, f"{key}.{name}")


def _marks(annotation: Any, metadata: list[Any]) -> list[Any]:
    """Return the metadata of a field's type. If the type is optional (`X | None`), include the
    metadata of `X`."""
    return [*metadata, *(mark for part in get_args(annotation) for mark in get_args(part))]
