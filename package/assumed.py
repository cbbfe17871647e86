"""Assume values for arguments that a preview does not know yet.

Without these values, the component could not tell Pulumi which resources it has. A preview would
then show that Pulumi deletes the resources of an earlier deploy, and it would fail if one of them
is protected.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, Final

import pulumi
from pydantic import ValidationError

from components.settings import Settings

Values = Mapping[str, Any]
Path = tuple[str | int, ...]
"""Keys and indexes from the arguments to a value in them."""

_KEY_TYPE: Final = b"ssh-ed25519"
_PUBLIC_KEY: Final = b64encode(
    len(_KEY_TYPE).to_bytes(4) + _KEY_TYPE + (32).to_bytes(4) + bytes(32)
).decode()
CANDIDATES: Final[Sequence[Any]] = (
    *(1, 2, 8, 64, 1024),
    *("unknown", "1GiB", "64GiB", "1TiB", "unknown.invalid", "https://unknown.invalid"),
    *("192.0.2.1", "192.0.2.0/24", "/unknown", f"ssh-ed25519 {_PUBLIC_KEY}"),
    False,
)
"""Values to try, one after the other: numbers, names, sizes, hosts, addresses, a path, a key."""
_MOST_TRIES: Final = 500
"""Limit of combinations, if several values are unknown. Each takes some milliseconds."""


class Unknown:
    """Marks a value that a preview does not know."""


def marked(value: Any) -> Any:
    """Return a value in which each output is known: unknown contents are marks."""
    if isinstance(value, Mapping):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [marked(item) for item in value]
    if isinstance(value, pulumi.Output):
        return value.apply(_with_marks, run_with_unknowns=True)
    return value


def _with_marks(value: Any) -> Any:
    if isinstance(value, pulumi.output.Unknown):
        return Unknown()
    if isinstance(value, Mapping):
        return {key: _with_marks(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_marks(item) for item in value]
    return value


def unknown_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each mark."""
    if isinstance(value, Unknown):
        yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from unknown_paths(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from unknown_paths(item, (*path, index))


def assume(values: Values) -> dict[Path, Any] | None:
    """Return a value for each mark, so that the settings are valid; None if no values fit."""
    paths = list(unknown_paths(values))
    fitting = [
        [one for one in CANDIDATES if not _has_problem(replaced(values, {path: one}), path)]
        for path in paths
    ]
    for chosen in islice(product(*fitting), _MOST_TRIES):
        found = dict(zip(paths, chosen, strict=True))
        if not _problems(replaced(values, found)):
            return found
    return None


def replaced(value: Any, found: Mapping[Path, Any], path: Path = ()) -> Any:
    """Return the values with other values at these paths."""
    if path in found:
        return found[path]
    if isinstance(value, Mapping):
        return {key: replaced(item, found, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(item, found, (*path, index)) for index, item in enumerate(value)]
    return value


def shown(path: Path) -> str:
    """Return a path as in messages, such as `nodesets[0].replicas`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _has_problem(values: Values, path: Path) -> bool:
    return any(found[: len(path)] == path for found in _problems(values))


def _problems(values: Values) -> list[Path]:
    """Return the paths of all values that the settings refuse."""
    try:
        Settings.model_validate(values)
    except ValidationError as error:
        return [details["loc"] for details in error.errors(include_url=False)]
    return []
